"""The meanings of metrics in words, and the units in which pages show gains in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from racecar_lab.experiment import Claim

MEANINGS = {
    r"test_accuracy": "share of test pictures that are put into the right class",
    r"valid_accuracy": "the same of pictures held out of the training set; searches choose by it",
    r"train_accuracy": "the same of the training set",
    r"test_nll": "negative log-likelihood of test pictures, per picture: lower is better",
    r"test_ece": "calibration error on test pictures: how far confidence is from accuracy, in 15 bins",
    r"valid_(nll|ece)": "the same of pictures held out of the training set",
    r"(edges|silhouettes)_accuracy": "the same of {} of the shape pictures that are held out",
    r"shape_bias": "of decisions for the class of a picture's shape or of its texture, the share for the shape",
    r"rebuilt_shape": "correlation of a picture and what the reverse pass makes of it, in their coarse parts",
    r"rebuilt_texture": "the same in what is left without these, the texture",
    r"weights": "how many weights the net has, biases and norms left out",
    r"source_accuracy": "test accuracy on the task that the net was trained on",
    r"source_nll": "negative log-likelihood on that task, per picture: lower is better",
    r"source_ece": "calibration error on that task: how far confidence is from accuracy, in 15 bins",
    r"probe_(\d+)": "accuracy of a linear classifier on the frozen features, with {} labelled pictures per class",
    r"tune_(\d+)": "accuracy of the whole net fine-tuned with {} labelled pictures per class",
    r"untrained_(\d+)": "the probe with {} labels on a net that was never trained",
    r"auroc_([a-z]+)_reverse": "AUROC for {}: how often it gives the higher reverse error (full, mean over the layers)",
    r"auroc_([a-z]+)_layerwise": "the same for {} by the layer-wise reverse error, mean over the layers",
    r"auroc_([a-z]+)_input": "the same for {} by the error of the full reverse pass at the input alone",
    r"auroc_([a-z]+)_softmax": "the same for {} by the largest softmax probability, lower for stranger",
    r"auroc_([a-z]+)_energy": "the same for {} by the energy, −log Σ exp of the logits",
    r"auroc_([a-z]+)_mahalanobis": "the same for {} by the distance of the last features from the nearest class",
    r"auroc_([a-z]+)_autoencoder": "the same for {} by the squared error of an autoencoder",
    r"auroc_([a-z]+)_autoencoder_relative": "the same for {} by that error over the picture's own square",
    r"reconstruction": "squared error of the autoencoder over the picture's own square, mean over test pictures",
    r"test_mse": "mean squared error on test samples: lower is better",
    r"test_within": "share of test samples whose sum is found within 0.04",
    r"valid_(mse|within)": "the same of samples held out of the training set",
    r"reverse_loss": "how far the reverse pass is from the forward pass: the mean over layers of ‖d − d'‖² / ‖d‖²",
    r"reverse_loss_(eval|running)": "the same as a deployed net has it, with running statistics of its norms",
    r"ssim": "structural similarity of the picture and what the reverse pass makes of it: 1 is the same picture",
    r"ssim_scaled": "the same after brightness and contrast were fitted, so that shape alone counts",
    r"psnr": "peak signal-to-noise ratio, in dB, of the input and what the reverse pass makes of it: higher is nearer",
    r"psnr_scaled": "the same after brightness and contrast were fitted",
    r"test_l2": "mean square error of pixels, on test pictures: lower is better",
    r"test_mae": "mean absolute error of pixels, on test pictures: lower is better",
    r"test_psnr": "peak signal-to-noise ratio of what the net makes of test pictures, in dB",
    r"test_ssim": "structural similarity of what the net makes of test pictures and what it should be",
    r"test_spectrum": "how far energy spectra are apart, in powers of ten, mean over wavenumbers: lower is better",
    r"test_relative": "mean square error over the mean square of the pictures themselves: lower is better",
    r"valid_(l2|psnr|ssim|spectrum|relative)": "the same of pictures held out of the training set",
    r"bicubic_(l2|ssim|spectrum)": "the same of bicubic interpolation, without any net",
    r"learning": "mean over the training of log₁₀ of the relative error on test pictures: lower is sooner",
    r"carried": "share of the data that the two leading singular vectors carry",
    r"cosine_(\d+)": "cosine between the features to be found and the {} leading singular vectors",
    r"lpips.*": "perceptual distance (LPIPS) of singular vectors from the features to be found: 0 is the same",
    r"i_xd": "information about the input in the activations, mean over the layers, in bits",
    r"i_dy": "information about the label in the activations, mean over the layers, in bits",
    r"i_xd_span": "largest less smallest information about the input over the layers, in bits",
    r"bit_count": "accuracy of the rule that counts the ones of the input",
    r"online_accuracy": "share of samples that are put into the right class just before they are trained on",
    r"first_(online|test|valid)_accuracy": "accuracy in the first task ({})",
    r"dead_units": "share of units that are 0 for all samples looked at",
    r"effective_rank": "exp of the entropy of the singular values of what the last layer is given",
    r"weight_norm": "length of all weights together",
    r"linear_error": "mean over layers of ‖AᵀA h − h‖² / ‖h‖²",
    r"real_accuracy": "share of real test digits of which c1, as it is read, goes with the digit, matched one-to-one",
    r"real_information": "normalised mutual information of c1 as it is read from real test digits and the digit",
    r"generated_(accuracy|information)": "the same of c1 read from generated digits and the c1 that they have",
    r"inverted_(real|generated)_(accuracy|information)": "the same of {} digits, read by gradient steps on the input",
    r"shown_(accuracy|information)": "the same of c1 and the digit that generated pictures show, by the judge",
    r"generated_(c\d)": "rank correlation |ρ| of {} as it is read from generated digits and as they have it",
    r"codes": "mean of generated_accuracy, generated_c2 and generated_c3; searches choose by it",
    r"frechet": "Fréchet distance of generated and real digits in the features of the judge: lower is nearer",
    r"digits": "number of digits that at least 1 % of the generated pictures show; fewer than eight: it has failed",
    r"judge_accuracy": "accuracy of the classifier that judges pictures, on those that it was not trained on",
    r"slant": "rank correlation |ρ| of the slant of generated digits with the code, c2 or c3, that it is matched with",
    r"stroke_width": "the same of their stroke width and the other code",
    r"parameters": "number of weights of all networks of the stage",
    r"reader_parameters": "number of weights beside the generator's that are needed to read codes",
    r"forward_(\d+)": "relative error of forecasts after {} steps: 1 is what zeros have, more than 10 counts as 10",
    r"backward_(\d+)": "the same of hindcasts {} steps back",
    r"persistence_(\d+)": "the same of no change, after {} steps",
    r"known_(forward|backward)": "1 − that error after 50 steps {}, at least 0: the part of the state that is right",
    r"energy_(forward|backward)": "energy drift after 50 steps {}: |energy / true energy − 1|, at most 10",
    r"valid_(learnt|backward)": "error after ten steps on held-out samples, in the direction trained, or backward",
    r"lost": "share of nets whose weights were not finite at the end",
    r"dead": "share of nets whose output does not depend on the input",
}
"""Regular expression for names of metrics → their meaning; {} stands for the groups of the expression."""
SHARES = re.compile(r"accuracy|_within$|^(probe|tune|auroc)_")
"""Names of metrics that are shares between 0 and 1; pages show gains in them in points, which are hundredths."""
UNITS = {r"psnr(_scaled)?": "dB", r"ssim(_scaled)?": "SSIM", r"test_l2": "L2"}
"""Regular expression for names of metrics → the unit in which pages show gains in them."""


class Unit(NamedTuple):
    """A unit in which pages show gains: its name, and the ``factor`` that a gain is multiplied by."""

    name: str
    factor: float = 1.0


def meanings(names: Iterable[str]) -> dict[str, str]:
    """Name of a metric → its meaning in words; names without one are left out."""
    matches = (
        (name, re.fullmatch(pattern, name), text) for name in dict.fromkeys(names) for pattern, text in MEANINGS.items()
    )
    return {name: text.format(*match.groups()) for name, match, text in matches if match}


def unit(claim: Claim) -> Unit:
    """The unit in which a claim's gain is shown: per cent, points, or the unit of its metric."""
    if claim.relative:
        return Unit("%", 100.0)
    if SHARES.search(claim.metric):
        return Unit("points", 100.0)
    names = (name for pattern, name in UNITS.items() if re.fullmatch(pattern, claim.metric))
    return Unit(next(names, claim.metric))
