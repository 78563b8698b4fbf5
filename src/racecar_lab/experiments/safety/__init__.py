"""The safety map: which reverse losses kill nets that plain training does not, and what the others are worth. (Ours.)

The design is in ``design``, the rule that chooses Racecar's defaults from it in ``rule``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.datasets import MNIST, Source, data_folder
from racecar_lab.experiment import PROBED, Experiment, Measured, Split, Stage, Task, Trained, accuracy
from racecar_lab.experiments.safety.design import SafetyConfig, designed
from racecar_lab.experiments.shared import coefficient_of, three_blocks
from racecar_lab.measures import transfer
from racecar_lab.measures.dead import is_dead
from racecar_lab.measures.probe import body, choose, features, ridge
from racecar_lab.training import rng
from racecar_lab.training.curves import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.report.page_table import Table
    from racecar_lab.running.run import Run

CLASSES = 5
"""Digits 0–4 are the source, 5–9 the new task."""
LIVING = 1 / CLASSES + 0.1
"""Accuracy below which a net counts as dead: chance and 10 points."""
WIDTHS = (16, 32, 32)
SIDE = 14
GROUPS = 4
VARIANT = {"none": "Std", "full": "RR", "layerwise": "lRR", "input": "RR1"}
"""Mode of the reverse pass → variant."""


class Safety(Experiment[SafetyConfig]):
    name = "safety"
    title = "The safety map: which reverse losses kill nets, and what the others are worth"
    section = "ours"
    summary = (
        "Small nets on MNIST's digits 0–4, in every combination of depth, first weights, norm and step size that a "
        "covering design asks for, with every reverse loss at seven λ; each beside its plain twin. The probe is a "
        "ridge regression on the features of digits 5–9."
    )
    Config = SafetyConfig
    quick: ClassVar[dict[str, Any]] = {
        "losses": ("reverse:relative:layerwise",), "lams": (0.1, 0.3), "depths": (3,), "images": 192, "epochs": 2,
        "batch": 16, "labels": (10,), "draws": 2, "tests": 250,
    }  # fmt: skip
    variants = ("Std", "RR", "lRR", "RR1")
    seeds = 5
    stackable = ("start", "lam")
    light = True
    tells = True
    source: ClassVar[Source] = MNIST

    def configs(self, config: SafetyConfig, folder: Path | None) -> Sequence[SafetyConfig]:
        return designed(config)

    def fingerprint(self, config: SafetyConfig, folder: Path | None) -> str:
        return self.source.title

    def needs(self, config: SafetyConfig) -> tuple[str, ...]:
        return (self.source.name,)

    def data(self, config: SafetyConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """A: digits 0–4; B: digits 5–9, halved to 14 × 14. Thousands of nets share them: they are read once."""
        return _tasks(data_folder(folder), seed, config.images, max(config.labels), config.tests, "cpu")

    def network(self, config: SafetyConfig, dropout: float = 0.0) -> nn.Module:
        how: dict[str, Any] = {"size": SIDE, "channels": 1, "classes": CLASSES}
        model = three_blocks(WIDTHS, config.depth, norm=config.norm != "none", start=config.start, **how)
        for i, module in enumerate(model.features):
            if isinstance(module, nn.BatchNorm2d) and config.norm == "group":
                model.features[i] = nn.GroupNorm(GROUPS, module.num_features)
        return model

    def stages(self, config: SafetyConfig) -> tuple[Stage, ...]:
        return (Stage("A", variants=(VARIANT[config.mode],)),)

    def coefficient(self, config: SafetyConfig, variant: str) -> float:
        return coefficient_of(variant, config.lam, Pre=4.0)

    def reverse(self, config: SafetyConfig) -> dict[str, Any]:
        """As it comes for a user: the whole batch; λ times the mean over layers."""
        weight = {"*": 1.0, "classifier*": 0.0} if config.layers == "body" else 1.0
        return {"scale": config.scale, "gradient": config.gradient, "reduction": "mean", "weight": weight}

    def measure(self, config: SafetyConfig, trained: Trained) -> Measured:
        what = config.images, max(config.labels), config.tests, str(trained.device)
        new_task = _tasks(data_folder(trained.folder), trained.seed, *what)["B"]
        seen = trained.task.train.x[:PROBED]
        source = accuracy(trained.model, trained.task.test)
        dead = source < LIVING or is_dead(trained.model, seen)
        metrics = {"source_accuracy": source, "dead": float(dead)}
        return Measured(
            {name: short(value) for name, value in {**metrics, **_probes(config, trained, new_task)}.items()}
        )

    def told(self, runs: Sequence[Run]) -> tuple[Sequence[str], Sequence[Table]]:
        from racecar_lab.experiments.safety.tables import told

        return told(runs)

    def figures(self, runs: Sequence[Run]) -> dict[str, Figure]:
        from racecar_lab.experiments.safety.map_figure import all_figures
        from racecar_lab.experiments.safety.rule import judge, nets_of

        return all_figures(judge(nets_of(runs)[0]))


@lru_cache(maxsize=64)
def _tasks(folder: Path, seed: int, images: int, labels: int, tests: int, device: str) -> Mapping[str, Task]:
    if device != "cpu":
        tasks = _tasks(folder, seed, images, labels, tests, "cpu")
        return {name: task.to(device) for name, task in tasks.items()}
    generator = rng.generator("safety", seed)
    sides = (CLASSES, CLASSES)
    tasks = transfer.tasks(Safety.source, folder, generator, sides=sides, images=images, labels=labels, tests=tests)
    return {name: Task(*(_halved(split) for split in (task.train, task.test))) for name, task in tasks.items()}


def _halved(split: Split) -> Split:
    return Split(F.avg_pool2d(split.x, 28 // SIDE), split.y)


@lru_cache(maxsize=64)
def _chosen(y: Tensor, labels: int, count: int, seed: int) -> Tensor:
    """Indices (draws, classes · labels) of labelled pictures, the same for all nets of a seed."""
    draws = [choose(y, labels, rng.generator("safety", seed, labels, i)) for i in range(count)]
    return torch.stack(draws).to(y.device)


def _probes(config: SafetyConfig, trained: Trained, task: Task) -> dict[str, float]:
    """Accuracy on the new task by labels per class, mean over the draws."""
    net = body(trained.model)
    sets = [_chosen(task.train.y, n, config.draws, trained.seed) for n in config.labels]
    flat = torch.cat([indices.flatten() for indices in sets])
    parts = features(net, task.train.x[flat]).split([indices.numel() for indices in sets])
    test = Split(features(net, task.test.x), task.test.y)
    accuracies = [
        ridge(Split(x.view(*indices.shape, -1), task.train.y[indices]), test, CLASSES, config.l2).mean()
        for indices, x in zip(sets, parts, strict=True)
    ]
    return {f"probe_{n}": value for n, value in zip(config.labels, torch.stack(accuracies).tolist(), strict=True)}
