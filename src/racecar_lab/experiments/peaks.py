"""Peaks SVD: do the singular vectors of a first layer show two dominant features under scribbles? (Sec. 3)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from racecar_lab.config import Config
from racecar_lab.datasets import peaks
from racecar_lab.experiment import (
    Claim,
    Experiment,
    Measured,
    Paper,
    Quick,
    Reporting,
    Split,
    Stage,
    Task,
    Trained,
    accuracy,
)
from racecar_lab.experiments.picture_figures import peaks_figures
from racecar_lab.experiments.shared import weight_of
from racecar_lab.measures.features import class_means, first_layer, rebuilt
from racecar_lab.networks.dense import dense, glorot
from racecar_lab.training.loss_config import PAPER
from racecar_lab.training.recipe import Recipe

NETS = {
    "linear": "one linear layer, 784-2",
    "norm": "one layer with batch norm and ReLU, 784-2",
    "two": "two layers with batch norm and ReLU, 784-128-2",
}
"""Name of a network → its description."""
TRAIN = 100
"""Number of training pictures; the others are for tests."""


@dataclass(frozen=True, kw_only=True)
class PeaksConfig(Config):
    epochs: int = 5000
    lr: float = 1e-4
    nets: tuple[str, ...] = tuple(NETS)
    """Names of the networks to train, each in runs of its own."""
    weight: float = 1e-6
    """λ of the reverse loss, as in the authors' code: the factor on half the squared error, summed over the batch, of
    pixels 0–255."""
    beta: float = 0.1
    """Weight β of the variant Ort's penalty, SRIP, as in the authors' code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("weight", "beta")
        if self.valid:
            raise ValueError(f"valid must be 0, not {self.valid!r}: this experiment has no search")
        if not self.nets or len(set(self.nets)) < len(self.nets) or not set(self.nets) <= set(NETS):
            raise ValueError(f"nets must be some of {', '.join(NETS)}, each once, not {','.join(self.nets)!r}")


class Peaks(Experiment[PeaksConfig]):
    name = "peaks"
    Config = PeaksConfig
    quick = Quick({"nets": ("two",), "epochs": 1500, "lr": 4e-4})
    claims = (
        *(
            Claim(
                f"RR carries the peaks better than {other}: {layers}",
                "cosine_1", "A", "RR", other, where={"nets": [net]},
            )
            for net, layers in NETS.items()
            for other in ("Std", "Ort")
        ),
        *(
            Claim(
                f"RR's singular vectors look more like the peaks than {other}'s: {NETS['norm']}",
                "lpips_alexnet", "A", "RR", other, higher=False, where={"nets": ["norm"]},
            )
            for other in ("Std", "Ort")
        ),
    )  # fmt: skip
    reporting = Reporting(
        title="Two peaks under scribbles",
        section="Sec. 3 (peak test)",
        summary=(
            "A hundred small pictures show a peak in one of two places, with random scribbles over it. Trained with "
            "the reverse pass, the first layer's right singular vectors should be the two peaks, in all three "
            "networks."
        ),
        paper=tuple(
            Paper("lpips_alexnet", "A", variant, value, spread, {"nets": ["norm"]}, "which net LPIPS had is not said")
            for variant, value, spread in (("RR", 0.217, 0.022), ("Std", 0.500, 0.002), ("Ort", 0.495, 0.006))
        ),
        first_weights="Glorot's, uniform",
        figures=partial(peaks_figures, nets=NETS),
    )

    def configs(self, config: PeaksConfig, folder: Path | None) -> Sequence[PeaksConfig]:
        return [replace(config, nets=(net,)) for net in config.nets]

    def data(self, config: PeaksConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        x, y = peaks.load(seed)
        return {"A": Task(Split(x[:TRAIN], y[:TRAIN]), Split(x[TRAIN:], y[TRAIN:]))}

    def network(self, config: PeaksConfig, dropout: float = 0.0) -> nn.Module:
        (net,) = config.nets
        widths = (784, 128, 2) if net == "two" else (784, 2)
        return glorot(dense(widths, nn.ReLU, norm=True, last=net != "linear", dropout=dropout))

    def weight(self, config: PeaksConfig, variant: str) -> float:
        return weight_of(variant, config.weight / 2, Ort=config.beta, Pre=500.0, Drop=0.5)

    def reverse(self, config: PeaksConfig) -> Mapping[str, Any]:
        """Arguments of ``Racecar``: the paper's own reverse loss."""
        return PAPER

    def orthogonality(self, config: PeaksConfig) -> dict[str, Any]:
        return {"power": 1, "squared": True}

    def recipe(self, config: PeaksConfig, stage: Stage) -> Recipe:
        return Recipe(look=look, looks=8, steady=True)

    def measure(self, config: PeaksConfig, trained: Trained) -> Measured:
        train = trained.task.train
        layer = first_layer(trained.model, "1", train.x, class_means(train.x, train.y), trained.folder)
        metrics = {"test_accuracy": accuracy(trained.model, trained.task.test), **layer.metrics}
        return Measured(metrics, arrays={**layer.arrays, **trained.history})


def look(model: nn.Module, task: Task) -> dict[str, Tensor]:
    """Return the first two pictures as the reverse pass rebuilds them. The trainer calls this at several moments of a
    training."""
    return {"rebuilt": rebuilt(model, task.train.x)[:2]}
