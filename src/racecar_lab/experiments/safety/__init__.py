"""The safety map: which reverse losses kill nets that live without them, and what the others gain. Not in the paper.

``design`` has the nets that are trained, ``rule`` the rule that chooses Racecar's defaults from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from racecar_lab.datasets import MNIST, Source, data_folder
from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Split, Stage, Task, Trained, accuracy
from racecar_lab.experiments.safety.design import SafetyConfig, design_configs
from racecar_lab.experiments.safety.map_figure import all_figures
from racecar_lab.experiments.safety.rule import judge, nets_of
from racecar_lab.experiments.safety.tables import sentences_and_tables
from racecar_lab.experiments.shared import three_blocks, weight_of
from racecar_lab.measures import transfer
from racecar_lab.measures.dead import SAMPLES, is_dead
from racecar_lab.measures.probe import body, choose, features, ridge
from racecar_lab.training import rng
from racecar_lab.training.curves import short

CLASSES = 5
"""Number of classes of each task: digits 0–4 are the source task, 5–9 the new task."""
LIVING = 1 / CLASSES + 0.1
"""Accuracy on the source task below which a net counts as dead: chance and 10 points."""
WIDTHS = (16, 32, 32)
"""Number of channels in each of the three blocks of convolutions."""
SIDE = 14
"""Height and width of the pictures in pixels."""
GROUPS = 4
"""Number of groups of a group norm."""
VARIANT = {"none": "Std", "full": "RR", "layerwise": "lRR", "input": "RR1"}
"""Mode of the reverse pass ("none": no reverse pass) → the variant that trains with it."""


class Safety(Experiment[SafetyConfig]):
    name = "safety"
    Config = SafetyConfig
    quick = Quick({
        "losses": ("reverse:relative:layerwise",), "weights": (0.1, 0.3), "depths": (3,), "images": 192, "epochs": 2,
        "batch": 16, "labels": (10,), "draws": 2, "tests": 250,
    })  # fmt: skip
    variants = ("Std", "RR", "lRR", "RR1")
    seeds = 5
    source: ClassVar[Source] = MNIST
    reporting = Reporting(
        title="The safety map: which reverse losses kill nets, and what the others are worth",
        section="ours",
        summary=(
            "Small nets on MNIST's digits 0–4, in every combination of depth, first weights, norm and step size that a "
            "covering design asks for, with every reverse loss at seven λ; each beside its plain twin. The probe is a "
            "ridge regression on the features of digits 5–9."
        ),
        figures=lambda runs: all_figures(judge(nets_of(runs))),
        sentences_and_tables=sentences_and_tables,
    )

    def configs(self, config: SafetyConfig, folder: Path | None) -> Sequence[SafetyConfig]:
        return design_configs(config)

    def sources(self, config: SafetyConfig) -> tuple[Source, ...]:
        return (self.source,)

    def data(self, config: SafetyConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Two tasks, "A": digits 0–4, "B": digits 5–9, with pictures halved to 14 × 14. They are cached, as thousands
        of nets have the same ones."""
        return _tasks(data_folder(folder), seed, config.images, max(config.labels), config.tests)

    def network(self, config: SafetyConfig, dropout: float = 0.0) -> nn.Module:
        norm = config.norm != "none"
        model = three_blocks(
            WIDTHS, config.depth, norm=norm, start=config.start, size=SIDE, channels=1, classes=CLASSES
        )
        for i, module in enumerate(model.features):
            if isinstance(module, nn.BatchNorm2d) and config.norm == "group":
                model.features[i] = nn.GroupNorm(GROUPS, module.num_features)
        return model

    def stages(self, config: SafetyConfig) -> tuple[Stage, ...]:
        return (Stage("A", variants=(VARIANT[config.mode],), light=True),)

    def weight(self, config: SafetyConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: SafetyConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``, as its users have them: the reverse pass sees the whole batch, and λ multiplies the
        mean over layers."""
        weight = {"*": 1.0, "classifier*": 0.0} if config.layers == "body" else 1.0
        return {"scale": config.scale, "gradient": config.gradient, "reduction": "mean", "weight": weight}

    def measure(self, config: SafetyConfig, trained: Trained) -> Measured:
        source = accuracy(trained.model, trained.task.test)
        dead = source < LIVING or is_dead(trained.model, trained.task.train.x[:SAMPLES])
        metrics = {"source_accuracy": source, "dead": float(dead), **_probes(config, trained)}
        return Measured({name: short(value) for name, value in metrics.items()})


@lru_cache(maxsize=64)
def _tasks(folder: Path, seed: int, images: int, labels: int, tests: int) -> Mapping[str, Task]:
    """Two tasks for a seed, "A": digits 0–4, "B": digits 5–9, with pictures of half the size.

    Args:
        folder: the data folder.
        seed: chooses the pictures.
        images: number of training pictures of A.
        labels: number of training pictures of each class that B must have at least.
        tests: number of test pictures of each task; 0: all.
    """
    generator = rng.generator("safety", seed)
    sides = (CLASSES, CLASSES)
    tasks = transfer.tasks(Safety.source, folder, generator, sides=sides, images=images, labels=labels, tests=tests)
    return {name: Task(_halved(task.train), _halved(task.test)) for name, task in tasks.items()}


def _halved(split: Split) -> Split:
    return Split(F.avg_pool2d(split.x, 28 // SIDE), split.y)


def _probes(config: SafetyConfig, trained: Trained) -> dict[str, float]:
    """Accuracy of a linear probe on the new task for each number of labels per class: "probe_10" → the mean over random
    sets of labelled pictures, which are the same for all nets of a seed."""
    net, task = body(trained.model), trained.tasks["B"].to(trained.device)
    test, accuracies = Split(features(net, task.test.x), task.test.y), {}
    for n in config.labels:
        generators = (rng.generator("safety", trained.seed, n, i) for i in range(config.draws))
        sets = torch.stack([choose(task.train.y, n, generator) for generator in generators]).to(trained.device)
        labelled = Split(features(net, task.train.x[sets.flatten()]).view(*sets.shape, -1), task.train.y[sets])
        accuracies[f"probe_{n}"] = ridge(labelled, test, CLASSES, config.l2).mean().item()
    return accuracies
