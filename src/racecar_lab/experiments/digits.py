"""MNIST SVD: one linear layer learns two digits; do its singular vectors show them? (Sec. 3 of the paper)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.config import Config
from racecar_lab.datasets import MNIST, Source, digits
from racecar_lab.experiment import Claim, Experiment, Measured, Paper, Quick, Reporting, Split, Stage, Task, Trained
from racecar_lab.experiments.picture_figures import digits_figures
from racecar_lab.experiments.shared import weight_of
from racecar_lab.measures.features import first_layer, rebuilt
from racecar_lab.networks.dense import dense, glorot
from racecar_lab.training import rng
from racecar_lab.training.loss_config import PAPER
from racecar_lab.training.recipe import Recipe

LPIPS = "lpips_alexnet"
"""Name of the metric by which singular vectors are compared with the two digits; a smaller value means more alike."""


@dataclass(frozen=True, kw_only=True)
class DigitsConfig(Config):
    epochs: int = 2000
    """Number of epochs, twice the paper's 1000, which are too few here for half of the pairs of digits. (The authors'
    code applies the softmax twice, so that its classification loss hardly changes the weights, and the reverse loss
    alone trains them.)"""
    lr: float = 1e-4
    weight: float = 1e-5
    """λ of the reverse loss, as in the authors' code: the factor on half the squared error, summed over the batch, of
    pixels 0–255."""
    beta: float = 0.1
    """Weight β of the variant Ort's penalty, SRIP, as in the authors' code."""
    shipped: bool = False
    """True: draw the pair of digits from the forty that come with racecar, instead of all of MNIST."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("weight", "beta")
        if self.valid:
            raise ValueError(f"valid must be 0, not {self.valid!r}: of two pictures none can be held out")


class Digits(Experiment[DigitsConfig]):
    name = "digits"
    Config = DigitsConfig
    quick = Quick({"shipped": True, "epochs": 300})
    claims = (
        Claim("RR's singular vectors carry both digits better than Std's", "cosine_2", "A", "RR", "Std"),
        Claim("RR's singular vectors carry both digits better than Ort's", "cosine_2", "A", "RR", "Ort"),
        Claim("RR's singular vectors look more like the digits than Std's", LPIPS, "A", "RR", "Std", higher=False),
        Claim("RR's singular vectors look more like the digits than Ort's", LPIPS, "A", "RR", "Ort", higher=False),
    )
    reporting = Reporting(
        title="Two digits in one layer",
        section="Sec. 3 (MNIST SVD)",
        summary=(
            "One linear layer is trained on two MNIST images. Trained with the reverse pass, its right singular "
            "vectors should show the two digits; trained plainly or with orthogonality, they should not."
        ),
        paper=(
            Paper(LPIPS, "A", "RR", 0.282, note="printed ± 0.82, surely a misprint; which net LPIPS had is not said"),
            Paper(LPIPS, "A", "Std", 0.411, 0.05),
            Paper(LPIPS, "A", "Ort", 0.403, 0.031),
        ),
        first_weights="Glorot's, uniform",
        describe_data=digits.describe,
        figures=digits_figures,
    )

    def fingerprint(self, config: DigitsConfig, folder: Path | None) -> str:
        return "shipped digits" if config.shipped else "MNIST training set"

    def sources(self, config: DigitsConfig) -> tuple[Source, ...]:
        return () if config.shipped else (MNIST,)

    def data(self, config: DigitsConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """The one task "A": two MNIST pictures of different digits, drawn by the seed, with pixels 0–255. They are both
        the training and the test set."""
        images, labels = digits.load() if config.shipped else MNIST.load(folder, "train")
        order = torch.randperm(len(labels), generator=rng.generator("digits", seed))
        second = next(i for i in order if labels[i] != labels[order[0]])
        indices = torch.stack((order[0], second))
        pair = Split(images[indices].float(), labels[indices])
        return {"A": Task(pair, pair)}

    def network(self, config: DigitsConfig, dropout: float = 0.0) -> nn.Module:
        return glorot(dense((784, 10)))

    def weight(self, config: DigitsConfig, variant: str) -> float:
        return weight_of(variant, config.weight / 2, Ort=config.beta, Pre=100.0, Drop=0.5)

    def reverse(self, config: DigitsConfig) -> Mapping[str, Any]:
        """Arguments of ``Racecar``: the paper's own reverse loss."""
        return PAPER

    def orthogonality(self, config: DigitsConfig) -> dict[str, Any]:
        return {"power": 1, "squared": True}

    def recipe(self, config: DigitsConfig, stage: Stage) -> Recipe:
        return Recipe(look=look, looks=8, steady=True)

    def measure(self, config: DigitsConfig, trained: Trained) -> Measured:
        x = trained.task.train.x
        layer = first_layer(trained.model, "1", x, x, trained.folder)
        return Measured(layer.metrics, arrays={**layer.arrays, **trained.history})


def look(model: nn.Module, task: Task) -> dict[str, Tensor]:
    """Return both digits as the reverse pass rebuilds them. The trainer calls this at several moments of a training."""
    return {"rebuilt": rebuilt(model, task.train.x)}
