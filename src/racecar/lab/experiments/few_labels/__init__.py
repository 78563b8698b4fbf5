"""Few labels: what a net that was trained on one task is worth for another with 2 to 250 labels per class. (Ours.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from racecar.lab.config import later
from racecar.lab.datasets import CIFAR10, MNIST, Source, motion
from racecar.lab.experiment import Claim, Experiment, Measured, Split, Stage, Task, Trained, accuracy
from racecar.lab.experiments.shared import OURS, coefficient_of, refuse_depth
from racecar.lab.experiments.small_net import SIDES, convolutions, small_net
from racecar.lab.measures import transfer
from racecar.lab.measures.calibration import calibration
from racecar.lab.measures.probe import body, choose, features, probe, settle, tune
from racecar.lab.search_space import Search
from racecar.lab.training import rng
from racecar.lab.training.longer import LongerConfig, with_longer
from racecar.lab.training.loss_config import FIRST_LOSS, LossConfig
from racecar.lab.training.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar.lab.running.run import Run

TASKS = {
    "digits": "MNIST, digits 0–4 → 5–9",
    "blur": "MNIST → n-MNIST, other pictures with motion blur",
    "cifar": "CIFAR-10, the first five classes → the other five",
}
MARGIN = 0.02
"""By how much two accuracies may differ that are called as good."""
SEEDS = 5
"""That a claim needs: a map has fewer, and claims nothing."""
SLICE = 1 / 8
"""Of each batch, that the reverse pass sees."""


@dataclass(frozen=True, kw_only=True)
class FewLabelsConfig(LongerConfig, LossConfig):
    """As it stands, this is the first try that the claims come from, with more seeds and a slice for the exact pass."""

    task: Literal["digits", "blur", "cifar"] = "digits"
    norm: Literal["none", "batch", "group"] = "none"
    """After every convolution: "none", "batch" or "group"."""
    start: Literal["torch", "he"] = later("torch", before="torch")
    """First weights of the convolutions: PyTorch's own, or He's."""
    images: int = 4000
    """That the source is trained on; 0: all there are."""
    augment: bool = False
    """Shift the source's pictures, by 2 pixels (MNIST), or flip them and shift by 4 (CIFAR-10)."""
    depth: int = 3
    """Convolutions: 3, 6, 9 …, in three blocks."""
    layers: Literal["all", "early", "late"] = "all"
    """Which convolutions are constrained: "all", "early" (the first block) or "late" (the last)."""
    decay: bool = False
    """The coefficient falls to 0 over the training, in a straight line."""
    epochs: int = 4
    lr: float = 1e-3
    batch: int = 64
    fraction: float = SLICE
    reduction: str = later(LossConfig.reduction, before="mean")
    strength: float = later(LossConfig.strength, before=0.1)
    labels: tuple[int, ...] = (2, 10, 50, 250)
    """Per class of the new task."""
    draws: int = 5
    """Sets of labelled pictures over which the probe is averaged."""
    l2: float = 1e-3
    """Of the probe: times half of Σ w², beside the mean cross-entropy, on features of mean squared length 1."""
    tests: int = 0
    """Pictures of each task's test set that are looked at, the first ones; 0: all."""
    tune_draws: int = 2
    """Sets over which fine-tuning is averaged; 0: no fine-tuning."""
    tune_steps: int = 100
    """Of Adam, from a classifier of zeros, without regulariser."""
    tune_lr: float = 1e-3
    tune_batch: int = 64
    cost: float = 1.33
    """On one core of a CPU without norm; with batch or group norm 1.26."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("images", "tests", "tune_draws")
        refuse_depth(self.depth)
        if not self.labels or min(self.labels) < 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be numbers of at least 1, each once, not {self.labels!r}")
        for name in ("draws", "l2", "tune_steps", "tune_lr", "tune_batch"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")


USUAL = {
    name: getattr(FewLabelsConfig, name)
    for name in ["task", "norm", "images", "epochs", "depth", "layers", "decay", "augment", "fraction", "longer"]
}
"""What the claims are about; other settings are shown on the map, and nothing is claimed of them."""
JUDGED = {
    name: frozenset({first, getattr(LossConfig, name)})
    for name, first in FIRST_LOSS.items()
    if name in ("scale", "gradient")
}
"""So is every loss that has been the usual one, each by itself."""


def _claim(
    text: str,
    metric: str,
    than: str = "Std",
    margin: float | None = None,
    against: Mapping[str, Any] | None = None,
    **where: Any,
) -> Claim:
    where = {**USUAL, **JUDGED, **where}
    return Claim(text, metric, "A", "RR", than, where=where, minimum_seeds=SEEDS, margin=margin, against=against or {})


class FewLabels(Experiment[FewLabelsConfig]):
    name = "few-labels"
    title = "Few labels: what features are worth for a new task"
    section = "ours"
    summary = (
        "A small net is trained on one task, then used for another with 2, 10, 50 or 250 labels per class: by a linear "
        "probe on its frozen features, and by fine-tuning all of it. A first try of four seeds found ten points more "
        "for RR at two labels without normalisation, and nothing with batch norm."
    )
    Config = FewLabelsConfig
    quick: ClassVar[dict[str, Any]] = {
        "images": 500, "epochs": 2, "batch": 16, "labels": (2, 10), "draws": 2, "tests": 250, "tune_draws": 1,
        "tune_steps": 20, "cost": 1.0,
    }  # fmt: skip
    variants = ("Std", "Ort", "Pre", "RR")
    seeds = 10
    sources: ClassVar[dict[str, Source]] = {"digits": MNIST, "blur": MNIST, "cifar": CIFAR10}
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2)},
        coefficients={
            "Ort": (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
            "Pre": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
            **dict.fromkeys(OURS, (0.0, 3e-2, 1e-1, 3e-1, 1.0, 3.0)),
            "WD": (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
        },
        seeds=2,
    )
    paper_coefficients = dict.fromkeys(OURS, (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3))
    stackable = ("start",)
    claims = (
        *(
            _claim(f"Without norm RR beats Std at {n} labels: probe, {task}", f"probe_{n}", task=task)
            for task in TASKS
            for n in (2, 10)
        ),
        *(_claim(f"Without norm RR beats {than} at 2 labels: probe", "probe_2", than) for than in ("Ort", "Pre")),
        _claim("Without norm RR beats Std at 2 labels: fine-tuned", "tune_2"),
        _claim(
            "Without norm RR beats Std trained as many seconds at 2 labels: probe", "probe_2", against={"longer": True}
        ),
        _claim(
            "Without norm a slice is as good as the exact reverse pass at 2 labels: probe", "probe_2", "RR", MARGIN,
            {"fraction": 1.0},
        ),
        *(
            _claim(f"With {norm} norm RR is as good as Std at 2 labels: probe", "probe_2", margin=MARGIN, norm=norm)
            for norm in ("batch", "group")
        ),
    )  # fmt: skip

    def configs(self, config: FewLabelsConfig, folder: Path | None) -> Sequence[FewLabelsConfig]:
        return with_longer(config)

    def fingerprint(self, config: FewLabelsConfig, folder: Path | None) -> str:
        return self.sources[config.task].title

    def needs(self, config: FewLabelsConfig) -> tuple[str, ...]:
        return (self.sources[config.task].name,)

    def data(self, config: FewLabelsConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """A: the source; B: the new task, with the pictures to draw labelled ones from. Which pictures depends on
        the seed. A share ``valid`` of the training files is held out of both, and then no test file is opened."""
        return transfer.tasks(
            self.sources[config.task],
            folder,
            rng.generator(self.name, seed),
            sides=SIDES[config.task],
            change=motion.blur if config.task == "blur" else None,
            images=config.images,
            labels=max(config.labels),
            valid=config.valid,
            tests=config.tests,
        )

    def network(self, config: FewLabelsConfig, dropout: float = 0.0) -> nn.Module:
        return small_net(config.task, config.depth, config.norm, config.start)

    def stages(self, config: FewLabelsConfig) -> tuple[Stage, ...]:
        """Std alone has the longer training."""
        return (Stage("A", epochs=config.long_epochs, variants=("Std",)) if config.longer else Stage("A"),)

    def coefficient(self, config: FewLabelsConfig, variant: str) -> float:
        return coefficient_of(variant, config.strength, Pre=4.0)

    def reverse(self, config: FewLabelsConfig) -> dict[str, Any]:
        """Errors of the constrained convolutions; pixels are at least 0."""
        return {
            **config.loss,
            "weight": {"*": 0.0, **dict.fromkeys(constrained(config), 1.0)},
            "fraction": config.fraction,
            "input_activation": "relu",
        }

    def layers(self, config: FewLabelsConfig) -> int:
        return len(constrained(config))

    def recipe(self, config: FewLabelsConfig, stage: Stage) -> Recipe:
        cifar = config.task == "cifar"
        return Recipe(shift=(4 if cifar else 2) if config.augment else 0, flip=cifar, fade=config.decay)

    def measure(self, config: FewLabelsConfig, trained: Trained) -> Measured:
        """All variants of a seed have the same labelled pictures. In a search, which is judged by the probe alone, on
        pictures held out of the training files, nothing else is measured."""
        task = self.data(config, trained.seed, trained.folder)["B"].to(trained.device)
        net = body(trained.model)
        probes = self._probes(config, net, task, trained.seed)
        if task.valid is not None:
            return Measured({"valid_accuracy": mean(probes.values())})
        metrics = {"source_accuracy": accuracy(trained.model, trained.task.test)}
        metrics |= {f"source_{name}": value for name, value in calibration(trained.model, trained.task.test).items()}
        metrics |= {f"probe_{n}": value for n, value in probes.items()}
        classes = 10 - SIDES[config.task][1]
        how: dict[str, Any] = {"steps": config.tune_steps, "lr": config.tune_lr, "batch": config.tune_batch}
        for n in config.labels if config.tune_draws else ():
            found = []
            for generator, chosen in self._chosen(config.tune_draws, n, task, trained.seed):
                few = Split(task.train.x[chosen], task.train.y[chosen])
                found.append(accuracy(tune(net, few, classes, generator=generator, **how), task.test))
            metrics[f"tune_{n}"] = mean(found)
        if trained.variant == "Std" and not config.longer:  # once for each seed: what the first weights are worth
            fresh = settle(self._untrained(config, trained), trained.task.train.x)
            metrics |= {f"untrained_{n}": v for n, v in self._probes(config, body(fresh), task, trained.seed).items()}
        return Measured(metrics)

    def _probes(self, config: FewLabelsConfig, net: nn.Module, task: Task, seed: int) -> dict[int, float]:
        """Labels per class → accuracy of the probe, mean over the draws."""
        sets = {n: [chosen for _, chosen in self._chosen(config.draws, n, task, seed)] for n in config.labels}
        needed, places = torch.cat([one for some in sets.values() for one in some]).unique(return_inverse=True)
        x, y, classes = features(net, task.train.x[needed]), task.train.y[needed], 10 - SIDES[config.task][1]
        test, found, start = Split(features(net, task.test.x), task.test.y), {}, 0
        for n, some in sets.items():
            parts = places[start : start + sum(map(len, some))].chunk(len(some))
            found[n] = mean(probe(Split(x[part], y[part]), test, classes, config.l2) for part in parts)
            start += sum(map(len, some))
        return found

    def _chosen(self, count: int, labels: int, task: Task, seed: int) -> list[tuple[torch.Generator, Tensor]]:
        """For each draw the generator, for what is random after it, and indices of the labelled pictures."""
        generators = [rng.generator(self.name, seed, labels, i) for i in range(count)]
        return [(one, choose(task.train.y, labels, one).to(task.train.y.device)) for one in generators]

    def _untrained(self, config: FewLabelsConfig, trained: Trained) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.seed_of("network", self.name, trained.seed))
            return self.network(config).to(trained.device)

    def figures(self, runs: Sequence[Run]) -> dict[str, Figure]:
        from racecar.lab.experiments.few_labels_figures import all_figures

        return all_figures(runs)


def constrained(config: FewLabelsConfig) -> list[str]:
    """Names of the convolutions that are."""
    return convolutions(config.depth, config.norm, config.layers)
