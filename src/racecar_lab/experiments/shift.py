"""Shift: does the reverse error of a single input show that it is unlike the training data? (Ours.)

The changes and their strengths (``noise``, ``blur``, ``contrast``), the claims and their scores were fixed before any
AUROC of these nets was seen; those of two prototypes, which disagreed, were known. lRR's score is the layer-wise error
that it was trained with, averaged over the layers. An AUROC is the mean over a mild and a strong change. Only the
claims about the autoencoder's relative error were added later, after a quick run of one seed: the autoencoder's plain
error falls when a change lowers the pictures' energy, so it is a weak baseline there. Searches see only accuracies on
the known classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.datasets import CIFAR10, MNIST, Source
from racecar_lab.experiment import Claim, Experiment, Measured, Quick, Reporting, Stage, Task, Trained, accuracy
from racecar_lab.experiments.shared import OURS, refuse_depth, weight_of
from racecar_lab.experiments.shift_figures import all_figures
from racecar_lab.experiments.shift_scores import CHANGES, SEVERITIES, SHIFTS, corrupted, of_autoencoder, of_net
from racecar_lab.experiments.small_net import SIDES, autoencoder, convolutions, small_net
from racecar_lab.measures import transfer
from racecar_lab.measures.strangeness import auroc
from racecar_lab.search_space import Search
from racecar_lab.training import rng
from racecar_lab.training.loss_config import LossConfig
from racecar_lab.training.recipe import Batch, Call, Recipe, Turn

SEEDS = 5
"""Number of seeds that a claim needs at least to be judged."""


@dataclass(frozen=True, kw_only=True)
class ShiftConfig(LossConfig):
    stackable = (*LossConfig.stackable, "start")
    task: Literal["digits", "cifar"] = "digits"
    """Data set, with the classes that the net learns: "digits", MNIST's 0–4 (unseen: 5–9), or "cifar", the first five
    classes of CIFAR-10 (unseen: the others)."""
    norm: Literal["none", "batch"] = "none"
    """Norm after every convolution."""
    start: Literal["torch", "he"] = "torch"
    """Initial weights of the convolutions: PyTorch's own, or He's."""
    images: int = 4000
    """Number of training pictures; 0: all."""
    depth: int = 3
    """Number of convolutions, in three blocks: 3, 6, 9 …"""
    epochs: int = 4
    lr: float = 1e-3
    batch: int = 64
    fraction: float = 1 / 8
    autoencoder_lr: float = 3e-3
    """Learning rate of the autoencoder, which is trained for as many epochs and on the same pictures as the classifier.
    Of 1e-3, 3e-3 and 1e-2 this one rebuilt held-out digits best (one seed, three convolutions, without norm and with
    it)."""
    noise: tuple[float, ...] = (0.1, 0.3)
    """Standard deviations of the noise that is added to test pictures with pixels in [0, 1]: mild and strong."""
    blur: tuple[float, ...] = (1.0, 2.0)
    """Standard deviations in pixels of the Gaussian that test pictures are blurred with: mild and strong."""
    contrast: tuple[float, ...] = (0.5, 0.2)
    """Factors by which the contrast of test pictures is reduced: mild and strong."""
    tests: int = 2000
    """Number of test pictures of the known classes, and of those of the unseen ones, from the first one on; 0: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("images", "tests")
        refuse_depth(self.depth)
        for name in CHANGES:
            if len(getattr(self, name)) != len(SEVERITIES) or min(getattr(self, name)) <= 0:
                raise ValueError(f"{name} must be two numbers above 0, mild and strong, not {getattr(self, name)!r}")
        if not self.autoencoder_lr > 0:
            raise ValueError(f"autoencoder_lr must be greater than 0, not {self.autoencoder_lr!r}")


def claims() -> tuple[Claim, ...]:
    """Claims that lRR's reverse error detects each shift of the data better than every other score."""
    result = []
    for shift, description in SHIFTS.items():
        ours = f"auroc_{shift}_layerwise"
        baselines = {
            "Std's energy": (f"auroc_{shift}_energy", ""),
            "Mahalanobis' distance in Std": (f"auroc_{shift}_mahalanobis", ""),
            "an autoencoder's squared error": (f"auroc_{shift}_autoencoder", "AE"),
            "an autoencoder's relative error": (f"auroc_{shift}_autoencoder_relative", "AE"),
            "Std's own reverse error": (ours, ""),
        }
        for name, (metric, stage) in baselines.items():
            text = f"{description[0].upper()}{description[1:]}: lRR's reverse error tells better than {name}"
            result.append(
                Claim(text, ours, "A", "lRR", "Std", minimum_seeds=SEEDS, than_stage=stage, than_metric=metric)
            )
    return tuple(result)


class Shift(Experiment[ShiftConfig]):
    name = "shift"
    Config = ShiftConfig
    quick = Quick({"images": 500, "epochs": 2, "batch": 16, "tests": 100}, seeds=1)
    variants = ("Std", "Ort", "RR", "lRR")
    seeds = 10
    data_sets: ClassVar[dict[str, Source]] = {"digits": MNIST, "cifar": CIFAR10}
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2)},
        weights={
            "Ort": (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
            **dict.fromkeys(OURS, (0.0, 3e-2, 1e-1, 3e-1, 1.0, 3.0)),
        },
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)),
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Shift seen for free: the reverse error of an input unlike the training data",
        section="ours",
        summary=(
            "A small net learns five classes. Pictures with noise, blur or less contrast, and pictures of five other "
            "classes, should have larger reverse errors than known ones. AUROC, 0.5 where nothing is seen, beside "
            "maximum softmax, energy, Mahalanobis' distance, and an autoencoder of the same size."
        ),
        figures=all_figures,
    )

    def sources(self, config: ShiftConfig) -> tuple[Source, ...]:
        return (self.data_sets[config.task],)

    def data(self, config: ShiftConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Two tasks, "A": the known classes; "B": the unseen classes, whose test pictures are scored."""
        return transfer.tasks(
            self.data_sets[config.task],
            folder,
            rng.generator(self.name, seed),
            sides=SIDES[config.task],
            images=config.images,
            valid=config.valid,
            tests=config.tests,
        )

    def network(self, config: ShiftConfig, dropout: float = 0.0) -> nn.Module:
        return small_net(config.task, config.depth, config.norm, config.start)

    def networks(self, config: ShiftConfig, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0) -> nn.Module:
        if stage.name == "AE":
            return autoencoder(config.task, config.depth, config.norm, config.start)
        return super().networks(config, stage, earlier, dropout)

    def stages(self, config: ShiftConfig) -> tuple[Stage, ...]:
        """Stage A trains the classifier. Stage AE trains an autoencoder, once for each seed; a search does not need
        it."""
        baseline = Stage("AE", regularised=False, variants=("Std",), network="an autoencoder")
        return (Stage("A"),) if config.valid else (Stage("A"), baseline)

    def recipe(self, config: ShiftConfig, stage: Stage) -> Recipe:
        return Recipe(turns=(Turn(rebuild, lr=config.autoencoder_lr),)) if stage.name == "AE" else Recipe()

    def weight(self, config: ShiftConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: ShiftConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: the reverse loss compares the convolutions. A ReLU keeps rebuilt pixels from being
        negative."""
        return {**config.loss, **_reverse_options(config)}

    def measure(self, config: ShiftConfig, trained: Trained) -> Measured:
        model, task = trained.model, trained.task
        if task.valid is not None:
            return Measured({"valid_accuracy": accuracy(model, task.valid)})
        if trained.stage.name == "AE":
            score, metrics = of_autoencoder(model), {}
        else:
            score, metrics = (
                of_net(model, task, _reverse_options(config)),
                {"test_accuracy": accuracy(model, task.test)},
            )
        strengths = {name: getattr(config, name) for name in CHANGES}
        shifted = corrupted(task.test.x, strengths, rng.generator(self.name, trained.seed, "noise"))
        shifted["unseen", ""] = trained.tasks["B"].test.x.to(trained.device)
        known = score(task.test.x)
        if "autoencoder_relative" in known.whole:
            metrics["reconstruction"] = float(known.whole["autoencoder_relative"].mean())
        severities: list[dict[str, Any]] = []
        layers: list[dict[str, Any]] = []
        for (shift, severity), x in shifted.items():
            scores, keys = score(x), {"shift": shift, "severity": severity}
            severities.append({**keys, **_aurocs(known.whole, scores.whole)})
            layers += [
                {**keys, "layer": name, **_aurocs(known.layers[name], scores.layers[name])} for name in scores.layers
            ]
        for shift in SHIFTS:
            for name in known.whole:
                metrics[f"auroc_{shift}_{name}"] = mean(row[name] for row in severities if row["shift"] == shift)
        return Measured(metrics, {"AUROC by severity": severities, "AUROC by layer": layers})


def rebuild(network: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    """Mean square error between the autoencoder's output and its input: its training loss."""
    return F.mse_loss(network(batch.x), batch.x)


def _reverse_options(config: ShiftConfig) -> dict[str, Any]:
    """Arguments of ``Racecar`` for scores: the reverse pass compares the convolutions; rebuilt pixels pass a ReLU."""
    names = convolutions(config.depth, config.norm)
    return {"weight": {"*": 0.0, **dict.fromkeys(names, 1.0)}, "input_activation": "relu"}


def _aurocs(known: Mapping[str, Tensor], shifted: Mapping[str, Tensor]) -> dict[str, float]:
    """Name of a score → AUROC with which it tells shifted pictures from known ones."""
    return {name: auroc(values, shifted[name]) for name, values in known.items()}
