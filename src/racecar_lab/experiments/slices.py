"""Slices: is a reverse pass over part of the batch, or in some of the steps, as good as the whole one? (Ours.)"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from racecar import Racecar
from racecar_lab.config import Schedule, guide
from racecar_lab.datasets import CIFAR10, MNIST, Source, sphere
from racecar_lab.experiment import Claim, Experiment, Measured, Quick, Reporting, Split, Stage, Task, Trained, accuracy
from racecar_lab.experiments.information import TRAIN, WIDTHS
from racecar_lab.experiments.shared import mean_terms, standardised, started, weight_of
from racecar_lab.experiments.slices_figures import all_figures
from racecar_lab.measures.features import deployed_loss
from racecar_lab.networks.dense import dense, glorot
from racecar_lab.networks.vgg import VGG16, vgg
from racecar_lab.training import rng
from racecar_lab.training.loss_config import LossConfig
from racecar_lab.training.recipe import Recipe

SLICES = ((1.0, 1), (1 / 8, 1), (1 / 16, 1), (1 / 8, 2), (1 / 8, 4), (1 / 16, 4))
"""Reverse passes that are compared: (share of the batch that it sees, number of steps of which one has it). The first
one is exact: it sees the whole batch in every step."""
OPTIMISERS: tuple[Literal["adam", "sgd"], ...] = ("adam", "sgd")
REVERSE_LOSS = 0.03
"""Largest difference of a reverse loss from that of the exact reverse pass that counts as equally good, as a share of
the latter."""
BATCH = 1000
"""Number of test samples whose reverse loss is computed at once."""


@dataclass(frozen=True, kw_only=True)
class SlicesConfig(LossConfig):
    """Settings of the experiment slices. The defaults were fixed before the runs, by short runs on seeds from 100
    on."""

    epochs: int = 400
    batch: int = 512
    lr: float = 3e-3
    """Learning rate of the runs with Adam."""
    lr_sgd: float = guide(3e-2)
    """Learning rate of the runs with SGD."""
    schedule: Schedule = "cosine"
    grid: bool = guide(True)
    """True: run all ``SLICES`` with both optimisers; false: a single run, as fraction, every, optimiser and lr say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("lr_sgd")
        if self.valid:
            raise ValueError(f"valid must be 0, not {self.valid!r}: this experiment has no search")


@dataclass(frozen=True, kw_only=True)
class PicturesConfig(SlicesConfig):
    unnamed: ClassVar[Mapping[str, Any]] = {**SlicesConfig.unnamed, "share": 1.0}
    share: float = 1.0
    """Share of the pictures, from the first one on, that is used to train and to test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_no_part("share")


@dataclass(frozen=True, kw_only=True)
class SlicesMnistConfig(PicturesConfig):
    epochs: int = 5
    batch: int = 256
    lr: float = 1e-3
    lr_sgd: float = 2e-2


@dataclass(frozen=True, kw_only=True)
class CifarConfig(PicturesConfig):
    epochs: int = 10
    precision: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    lr: float = 1e-3
    lr_sgd: float = 2e-2
    unnamed: ClassVar[Mapping[str, Any]] = {**PicturesConfig.unnamed, "width": 1.0}
    width: float = 1.0
    """Factor on the number of channels of every convolution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.width > 0:
            raise ValueError(f"width must be greater than 0, not {self.width!r}")


S = TypeVar("S", bound=SlicesConfig)
P = TypeVar("P", bound=PicturesConfig)


def claims(accuracy: float) -> tuple[Claim, ...]:
    """Claims that RR with a reverse pass over part of the batch, or in some of the steps, is as good as with the exact
    one: in reverse loss within ``REVERSE_LOSS``, in accuracy within ``accuracy``. These margins were fixed before the
    runs."""
    exact = {"fraction": SLICES[0][0], "every": SLICES[0][1]}
    result = []
    for optimiser, (fraction, every) in product(OPTIMISERS, SLICES[1:]):
        steps = "" if every == 1 else f" in one of {every} steps"
        text = f"1/{round(1 / fraction)} of the batch{steps} is as good as all, {optimiser}"
        where = {"optimiser": optimiser, "fraction": fraction, "every": every}
        same = Claim(f"{text}: accuracy", "test_accuracy", "A", "RR", "RR", True, where, margin=accuracy, against=exact)
        loss = replace(same, text=f"{text}: reverse loss", metric="reverse_loss", higher=False)
        result += [replace(loss, margin=REVERSE_LOSS, relative=True), same]
    return tuple(result)


class Slices(Experiment[S]):
    """The experiment slices on a task of 12 bits: six dense layers, whose reverse pass sees part of the batch or runs
    in some of the steps, compared with the exact one. Subclasses have convolutions on pictures."""

    name = "slices"
    Config: ClassVar[type[SlicesConfig]] = SlicesConfig
    quick = Quick({"epochs": 10})
    variants = ("Std", "RR")
    seeds = 10
    claims = claims(accuracy=0.02)
    reporting = Reporting(
        title="A slice of the reverse pass: six layers on 12 bits",
        section="ours",
        summary=(
            "The reverse pass may see a part of each batch, or run in some of the steps with a larger weight. Every "
            "such slice should end with the relative reverse loss of the exact one, within 3 %, and with its test "
            "accuracy, within 0.01 (on 12 bits 0.02)."
        ),
        first_weights="Glorot's, uniform",
        figures=all_figures,
    )

    def configs(self, config: S, folder: Path | None) -> Sequence[S]:
        if not config.grid:
            return [config]
        if (config.fraction, config.every, config.optimiser) != (*SLICES[0], OPTIMISERS[0]):
            raise ValueError(
                "this experiment runs all values of fraction, every and optimiser; to choose one, add --set grid=false"
            )
        return [
            replace(config, grid=False, optimiser=optimiser, lr=lr, fraction=fraction, every=every)
            for optimiser, lr in zip(OPTIMISERS, (config.lr, config.lr_sgd), strict=True)
            for fraction, every in SLICES
        ]

    def fingerprint(self, config: S, folder: Path | None) -> str:
        return "made from its rule, seed 0"

    def data(self, config: S, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """One task, "A", a rule on 12 bits. The seed splits the patterns into training and test set."""
        x, y = sphere.load()
        order = torch.randperm(len(y), generator=rng.generator("slices", seed))
        train, test = (Split(x[indices], y[indices]) for indices in (order[:TRAIN], order[TRAIN:]))
        return {"A": Task(train, test)}

    def network(self, config: S, dropout: float = 0.0) -> nn.Module:
        return glorot(dense(WIDTHS, nn.Tanh, dropout=dropout))

    def stages(self, config: S) -> tuple[Stage, ...]:
        """One stage, "A". Variants without a reverse pass do not depend on fraction and every, so they are trained only
        where these are exact."""
        exact = (config.fraction, config.every) == SLICES[0]
        return (Stage("A", variants=None if exact else ("RR", "lRR", "RR1")),)

    def weight(self, config: S, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=20.0)

    def reverse(self, config: S) -> dict[str, Any]:
        """Arguments of ``Racecar``: the reverse loss weighs all layers alike, and leaves out a classifier on top of
        convolutions."""
        return {**config.loss, "weight": {"*": 1.0, **self.head}}

    head: ClassVar[dict[str, float]] = {}

    def measure(self, config: S, trained: Trained) -> Measured:
        """Test accuracy, and relative reverse loss on the test set. The claims are about ``reverse_loss``, computed as
        in training.

        Nets with batch norm also have the loss with running statistics, which tells how well the net can be reversed in
        use: those of the forward pass (``reverse_loss_running``), or of the reverse pass (``reverse_loss_eval``).
        """
        model, test, weight = trained.model, trained.task.test, self.reverse(config)["weight"]
        metrics = {"reverse_loss": reverse_loss(model, test.x, weight, True), "test_accuracy": accuracy(model, test)}
        if list(model.buffers()):
            metrics["reverse_loss_running"] = reverse_loss(model, test.x, weight, False)
            options = {**self.reverse(config), "scale": "relative"}
            metrics["reverse_loss_eval"] = deployed_loss(
                model, trained.task.train.x[: 4 * BATCH], test.x, options, BATCH
            )
        return Measured(metrics)


class _Pictures(Slices[P]):
    """Base class of the experiments with slices that train convolutions on pictures. The data set's own training and
    test set are used."""

    source: ClassVar[Source]
    head: ClassVar[dict[str, float]] = {"classifier*": 0.0}
    seeds = 5
    quick = Quick({"epochs": 1, "batch": 50, "share": 1 / 120})
    claims = claims(accuracy=0.01)

    def sources(self, config: P) -> tuple[Source, ...]:
        return (self.source,)

    def fingerprint(self, config: P, folder: Path | None) -> str:
        return self.source.title

    def data(self, config: P, seed: int, folder: Path | None) -> Mapping[str, Task]:
        splits = []
        for name in ("train", "test"):
            x, y = self.source.load(folder, name)
            count = max(1, round(config.share * len(y)))
            splits.append(Split(x[:count].float() / 255, y[:count]))
        return {"A": Task(*splits)}


class SlicesMnist(_Pictures[SlicesMnistConfig]):
    name = "slices-mnist"
    reporting = replace(
        Slices.reporting,
        title="A slice of the reverse pass: three convolutions on MNIST",
        first_weights="PyTorch's own",
    )
    Config = SlicesMnistConfig
    source = MNIST

    def network(self, config: SlicesMnistConfig, dropout: float = 0.0) -> nn.Module:
        return started(vgg((20, "M", 40, "M", 60, "M"), norm=False, size=28, channels=1))


class SlicesCifar(_Pictures[CifarConfig]):
    name = "slices-cifar"
    reporting = replace(
        Slices.reporting,
        title="A slice of the reverse pass: thirteen convolutions with batch norm on CIFAR-10",
        first_weights="He's, by fan-out",
    )
    Config = CifarConfig
    quick = Quick({"epochs": 1, "batch": 25, "share": 1 / 500, "width": 1 / 4, "precision": "float32"}, seeds=1)
    source = CIFAR10

    def data(self, config: CifarConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """One task, "A": CIFAR-10, shifted and scaled so that every colour has mean 0 and standard deviation 1 over the
        training set."""
        return {"A": standardised(super().data(config, seed, folder)["A"])}

    def network(self, config: CifarConfig, dropout: float = 0.0) -> nn.Module:
        return vgg([item if isinstance(item, str) else max(1, round(config.width * item)) for item in VGG16])

    def recipe(self, config: CifarConfig, stage: Stage) -> Recipe:
        return Recipe(shift=4)


@torch.no_grad()
def reverse_loss(model: nn.Module, x: Tensor, weight: Any, training: bool) -> float:
    """The exact relative reverse loss of a trained model in mode full, averaged over layers and samples. The model is
    not changed.

    Args:
        model: the trained model.
        x: samples (N, …).
        weight: λ of the layers, as the argument ``weight`` of ``Racecar``; layers with λ = 0 are left out of the mean.
        training: True: batch norm uses the statistics of the batch, as in training; False: the running ones.
    """
    model = copy.deepcopy(model).train(training)
    return mean_terms(Racecar(model, x[:2], mode="full", weight=weight, scale="relative"), x, BATCH)
