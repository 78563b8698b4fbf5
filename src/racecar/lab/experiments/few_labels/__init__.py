"""Few labels: what a net that was trained on one task is worth for another with 2 to 250 labels per class. (Ours.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from racecar.lab.datasets import CIFAR10, MNIST, Source, motion
from racecar.lab.experiment import Experiment, Measured, Split, Stage, Task, Trained, accuracy
from racecar.lab.experiments.few_labels.claims import TASKS as TASKS
from racecar.lab.experiments.few_labels.claims import USUAL as USUAL
from racecar.lab.experiments.few_labels.claims import claims
from racecar.lab.experiments.few_labels.config import FewLabelsConfig
from racecar.lab.experiments.few_labels.fine_tuning import fine_tuned
from racecar.lab.experiments.shared import OURS, coefficient_of
from racecar.lab.experiments.small_net import SIDES, convolutions, small_net
from racecar.lab.measures import transfer
from racecar.lab.measures.calibration import calibration
from racecar.lab.measures.probe import body, choose, features, probe, settle
from racecar.lab.search_space import Search
from racecar.lab.training import rng
from racecar.lab.training.longer import with_longer
from racecar.lab.training.recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar.lab.running.run import Run


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
        "tune_steps": 20, "tune_lrs": (1e-3,), "cost": 1.0,
    }  # fmt: skip
    variants = ("Std", "Ort", "OrtB", "Pre", "RR", "lRR")
    quick_seeds = 1
    seeds = 10
    sources: ClassVar[dict[str, Source]] = {"digits": MNIST, "blur": MNIST, "cifar": CIFAR10}
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2)},
        coefficients={
            **dict.fromkeys(("Ort", "OrtB"), (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
            "Pre": (2.0, 6.0, 18.0),
            **dict.fromkeys(OURS, (0.0, 3e-2, 1e-1, 3e-1, 1.0, 3.0)),
            "WD": (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
        },
        own={"Pre": {"pretrain_lr": (1e-3, 3e-3)}},
        seeds=2,
    )
    paper_coefficients = dict.fromkeys(OURS, (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3))
    stackable = ("start",)
    claims = claims()

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
        task = trained.tasks["B"].to(trained.device)
        net = body(trained.model)
        probes = self._probes(config, net, task, trained.seed)
        if task.valid is not None:
            return Measured({"valid_accuracy": mean(probes.values())})
        metrics = {"source_accuracy": accuracy(trained.model, trained.task.test)}
        metrics |= {f"source_{name}": value for name, value in calibration(trained.model, trained.task.test).items()}
        metrics |= {f"probe_{n}": value for n, value in probes.items()}
        classes = 10 - SIDES[config.task][1]
        lrs = {}
        for n in config.labels if config.tune_draws else ():
            draws = self._chosen(config.tune_draws, n, task, trained.seed)
            other = rng.generator(self.name, trained.seed, "held", n)
            metrics[f"tune_{n}"], lrs[f"tune_{n}"] = fine_tuned(config, net, task, classes, draws, other)
        if trained.variant == "Std" and not config.longer:  # once for each seed: what the first weights are worth
            fresh = settle(self._untrained(config, trained), trained.task.train.x)
            metrics |= {f"untrained_{n}": v for n, v in self._probes(config, body(fresh), task, trained.seed).items()}
        return Measured(metrics, {"learning rates": [lrs]} if config.tune_lrs else {})

    def _probes(self, config: FewLabelsConfig, net: nn.Module, task: Task, seed: int) -> dict[int, float]:
        """Labels per class → accuracy of the probe, mean over the draws."""
        drawn = {n: torch.stack([some for _, some in self._chosen(config.draws, n, task, seed)]) for n in config.labels}
        needed = torch.cat([some.flatten() for some in drawn.values()]).unique()
        place = torch.zeros_like(task.train.y)
        place[needed] = torch.arange(len(needed), device=place.device)
        x, test = features(net, task.train.x[needed]), Split(features(net, task.test.x), task.test.y)
        found, classes = {}, 10 - SIDES[config.task][1]
        for n, some in drawn.items():
            found[n] = float(probe(Split(x[place[some]], task.train.y[some]), test, classes, config.l2).mean())
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
        from racecar.lab.experiments.few_labels.figures import all_figures

        return all_figures(runs)


def constrained(config: FewLabelsConfig) -> list[str]:
    """Names of the convolutions that are."""
    return convolutions(config.depth, config.norm, config.layers)
