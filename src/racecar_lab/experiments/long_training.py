"""Long training with a strong recipe: does the reverse pass still help, and how close does it come to batch norm?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from racecar_lab.config import Schedule
from racecar_lab.datasets import CIFAR10, Source
from racecar_lab.experiment import Claim, Experiment, Measured, Quick, Reporting, Split, Stage, Task, Trained, accuracy
from racecar_lab.experiments.long_training_figures import all_figures
from racecar_lab.experiments.shared import OURS, refuse_depth, standardised, three_blocks, weight_of
from racecar_lab.measures.calibration import calibration
from racecar_lab.search_space import Search
from racecar_lab.training import rng
from racecar_lab.training.longer import LongerConfig, with_longer
from racecar_lab.training.loss_config import LossConfig
from racecar_lab.training.recipe import Recipe

SHIFT = 4
"""Largest random shift of training pictures, in pixels; they are also flipped at random."""
SEEDS = 5
"""Number of seeds that a claim needs at least to be judged."""
JUDGED = {"test_accuracy": "accuracy", "test_nll": "likelihood", "test_ece": "calibration"}
"""Name of a metric → its name in claims; lower is better for the last two."""


@dataclass(frozen=True, kw_only=True)
class LongTrainingConfig(LongerConfig, LossConfig):
    """Settings of long-training. All variants share the recipe (augmentation, optimiser, schedule); a search chooses
    learning rate, λ and weight decay."""

    stackable = (*LossConfig.stackable, "start")
    images: int = 0
    """Number of training pictures, drawn anew for every seed; 0: all."""
    depth: int = 6
    """Number of convolutions, in three blocks: 3, 6, 9 …"""
    widths: tuple[int, ...] = (64, 128, 256)
    """Numbers of channels of the three blocks; the picture is halved after each."""
    norm: Literal["none", "batch"] = "none"
    """Norm after every convolution."""
    start: Literal["torch", "he"] = "he"
    """Initial weights of the convolutions: PyTorch's own, or He's."""
    epochs: int = 30
    batch: int = 128
    lr: float = 1e-3
    optimiser: Literal["adam", "adamw", "sgd"] = "adamw"
    schedule: Schedule = "onecycle"
    weight_decay: float = 1e-2
    fraction: float = 1 / 8
    tests: int = 0
    """Number of test pictures, from the first one on; 0: all."""
    cost: float = 1.2
    """Time of a step of RR divided by that of a step of Std, roughly, if the reverse pass sees an eighth of the batch;
    measure it where you train."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("images", "tests")
        refuse_depth(self.depth)
        if len(self.widths) != 3 or min(self.widths) < 1:
            raise ValueError(f"widths must be three numbers of at least 1, not {self.widths!r}")


def claims() -> tuple[Claim, ...]:
    """Claims that RR and lRR without norm beat other nets in accuracy, likelihood and calibration; every depth is
    judged separately."""
    comparisons: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("Without norm RR beats Std", "RR", "Std", {}),
        ("Without norm lRR beats Std", "lRR", "Std", {}),
        ("Without norm RR beats Ort", "RR", "Ort", {}),
        ("Without norm RR beats Std trained as many seconds", "RR", "Std", {"longer": True}),
        ("RR without norm beats Std with batch norm", "RR", "Std", {"norm": "batch"}),
    )
    where = {"norm": "none", "longer": False}
    return tuple(
        Claim(f"{text}: {meaning}", metric, "A", better, than, higher=metric == "test_accuracy", where=where,
              minimum_seeds=SEEDS, against=against)
        for metric, meaning in JUDGED.items()
        for text, better, than, against in comparisons
    )  # fmt: skip


class LongTraining(Experiment[LongTrainingConfig]):
    name = "long-training"
    Config = LongTrainingConfig
    quick = Quick({"images": 200, "widths": (16, 32, 64), "epochs": 2, "batch": 50, "tests": 200, "cost": 1.0})
    variants = ("Std", "Ort", "RR", "lRR")
    seeds = 10
    claims = claims()
    search = Search(
        lrs={"adamw": (1e-3, 3e-3)},
        weights={"Ort": (0.0, 1e-3, 1e-2, 1e-1), **dict.fromkeys(OURS, (0.0, 1e-2, 1e-1, 1.0))},
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-8, 1e-7, 1e-6)),
        fields={"weight_decay": (1e-2, 1e-1)},
        seeds=2,
    )
    source: ClassVar[Source] = CIFAR10
    reporting = Reporting(
        title="Long training: a strong recipe without norms",
        section="ours",
        summary=(
            "Six or nine convolutions learn CIFAR-10 for 30 epochs by a strong recipe: He's first weights, flips and "
            "shifts, one cycle of the learning rate, AdamW. Learning rate, weight decay and λ are searched for every "
            "variant alike. The question is what the reverse pass still gains without norms, and how near that comes "
            "to batch norm."
        ),
        figures=all_figures,
    )

    def configs(self, config: LongTrainingConfig, folder: Path | None) -> Sequence[LongTrainingConfig]:
        """The configurations to run: nets without norm also have a longer training of Std; the net with batch norm is
        only a reference, and has none."""
        return with_longer(config) if config.norm == "none" else [config]

    def sources(self, config: LongTrainingConfig) -> tuple[Source, ...]:
        return (self.source,)

    def data(self, config: LongTrainingConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """One task, "A": CIFAR-10. In a search, a share ``valid`` of the training files takes the place of the test
        files, which are not opened."""
        x, y = self.source.load(folder, "train")
        order = torch.randperm(len(y), generator=rng.generator(self.name, seed))
        valid, train = order.tensor_split([round(config.valid * len(y))])
        if max(config.images, 1) > len(train):
            raise ValueError(f"images={config.images}: there are {len(train)} to train on")
        train, tested = train[: config.images or None], slice(config.tests or None)
        test_x, test_y = (x[valid], y[valid]) if config.valid else self.source.load(folder, "test")
        train_split = Split(x[train].float() / 255, y[train])
        test_split = Split(test_x[tested].float() / 255, test_y[tested])
        return {"A": standardised(Task(train_split, test_split, test_split if config.valid else None))}

    def network(self, config: LongTrainingConfig, dropout: float = 0.0) -> nn.Module:
        return three_blocks(config.widths, config.depth, norm=config.norm == "batch", start=config.start)

    def stages(self, config: LongTrainingConfig) -> tuple[Stage, ...]:
        """One stage, "A". If ``config.longer``, it has more epochs, and only Std is trained."""
        return (Stage("A", epochs=config.long_epochs, variants=("Std",)) if config.longer else Stage("A"),)

    def weight(self, config: LongTrainingConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: LongTrainingConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: the reverse loss compares all convolutions, and leaves out the classifier."""
        return {**config.loss, "weight": {"features*": 1.0}}

    def recipe(self, config: LongTrainingConfig, stage: Stage) -> Recipe:
        return Recipe(shift=SHIFT)

    def measure(self, config: LongTrainingConfig, trained: Trained) -> Measured:
        """Accuracy and calibration, on the test pictures, or in a search on the held-out ones."""
        kind, split = trained.task.evaluated
        metrics = {"accuracy": accuracy(trained.model, split), **calibration(trained.model, split)}
        return Measured({f"{kind}_{name}": value for name, value in metrics.items()})
