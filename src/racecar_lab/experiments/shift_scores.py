"""The scores that shift compares, one number for each picture, and the changed pictures that they should detect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from racecar.inspect import sample_errors
from racecar_lab.datasets import corruption
from racecar_lab.experiment import Task
from racecar_lab.measures.features import deployed
from racecar_lab.measures.probe import body, features
from racecar_lab.measures.strangeness import Mahalanobis, energy, squared_errors, unsure

SHIFTS = {
    "noise": "Gaussian noise",
    "blur": "Gaussian blur",
    "contrast": "less contrast",
    "unseen": "classes that the net never saw",
}
CHANGES = ("noise", "blur", "contrast")
"""Shifts that are made by changing test pictures, each as strongly as the configuration says."""
SEVERITIES = ("mild", "strong")
CALIBRATED = 2000
"""Number of training pictures, the first ones, from which batch norms get their statistics for the reverse pass."""
BATCH = 500
"""Number of pictures that are scored at once."""


class Scores(NamedTuple):
    """Scores (N,) of N pictures; a higher one means a picture less like the training data."""

    whole: dict[str, Tensor]
    """Name of the score → its values (N,)."""
    layers: dict[str, dict[str, Tensor]]
    """Layer → "reverse" and "layerwise", two kinds of reverse error → the values (N,) for this layer."""


Scorer = Callable[[Tensor], Scores]
"""Function from pictures (N, C, H, W) to their scores."""


def of_net(model: nn.Module, task: Task, compared: Mapping[str, Any]) -> Scorer:
    """Make the scorer of a classifier in evaluation mode. The Gaussians of Mahalanobis' distance and, with batch norm,
    the statistics of the reverse pass are fitted to the training pictures.

    Args:
        model: the trained classifier.
        task: the task with the training pictures.
        compared: arguments of ``Racecar``: the layers whose errors count, and what is applied to the rebuilt picture.
    """
    train = task.train.x[:CALIBRATED]
    modes = {"reverse": "full", "layerwise": "layerwise"}
    cars = {name: deployed(model, train, mode, compared, BATCH) for name, mode in modes.items()}
    net = body(model)
    gaussians = Mahalanobis.fit(features(net, task.train.x), task.train.y)

    @torch.no_grad()
    def score(x: Tensor) -> Scores:
        errors = {name: sample_errors(rr, x, BATCH) for name, rr in cars.items()}
        layers = {layer: {name: by_layer[layer] for name, by_layer in errors.items()} for layer in errors["reverse"]}
        logits = torch.cat([model(part) for part in x.split(BATCH)])
        whole = {name: torch.stack(list(by_layer.values())).mean(0) for name, by_layer in errors.items()}
        whole |= {"input": next(iter(layers.values()))["reverse"]}
        whole |= {"softmax": unsure(logits), "energy": energy(logits), "mahalanobis": gaussians(features(net, x))}
        return Scores(whole, layers)

    return score


def of_autoencoder(model: nn.Module) -> Scorer:
    """Make the scorer of an autoencoder, with two scores: the squared error of the rebuilt picture, and the same
    divided by the square of the picture, as in reverse errors."""

    @torch.no_grad()
    def score(x: Tensor) -> Scores:
        plain, relative = squared_errors(x, torch.cat([model(part) for part in x.split(BATCH)]))
        return Scores({"autoencoder": plain, "autoencoder_relative": relative}, {})

    return score


def corrupted(
    known: Tensor, strengths: Mapping[str, tuple[float, ...]], generator: torch.Generator
) -> dict[tuple[str, str], Tensor]:
    """Change test pictures: (shift, severity) → changed pictures (N, C, H, W).

    Args:
        known: the pictures (N, C, H, W), in [0, 1].
        strengths: "noise", "blur" and "contrast" → one number for each of ``SEVERITIES``.
        generator: draws the noise.
    """
    changes: dict[str, Callable[[float], Tensor]] = {
        "noise": lambda sd: corruption.noise(known, sd, generator),
        "blur": lambda sigma: corruption.blur(known, sigma),
        "contrast": lambda share: corruption.contrast(known, share),
    }
    return {
        (shift, severity): change(value)
        for shift, change in changes.items()
        for severity, value in zip(SEVERITIES, strengths[shift], strict=True)
    }
