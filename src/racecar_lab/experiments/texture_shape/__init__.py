"""Texture against shape: how nets trained on stylised pictures classify shapes that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from racecar_lab.datasets import Source
from racecar_lab.datasets.texture_shape import CLASSES, FOLDS, TEXTURE_SHAPE
from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Stage, Task, Trained
from racecar_lab.experiments.shared import OURS, three_blocks, weight_of
from racecar_lab.experiments.texture_shape.claims import PAPER, claims
from racecar_lab.experiments.texture_shape.config import TextureShapeConfig
from racecar_lab.experiments.texture_shape.figures import all_figures
from racecar_lab.experiments.texture_shape.measuring import measure
from racecar_lab.experiments.texture_shape.ratios import paper_table
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS, tasks
from racecar_lab.search_space import Search
from racecar_lab.training import rng
from racecar_lab.training.longer import with_longer
from racecar_lab.training.recipe import Recipe

SHIFT, ZOOM = 1 / 8, 0.25
"""Strong augmentation: largest shift and largest change of size, as shares of a picture's size."""


class TextureShape(Experiment[TextureShapeConfig]):
    name = "texture-shape"
    Config = TextureShapeConfig
    quick = Quick({"images": 256, "size": 16, "widths": (8, 12, 16), "epochs": 2, "finetune": 1, "cost": 1.0}, seeds=1)
    variants = ("Std", "WD", "Ort", "Pre", "RR", "lRR")
    seeds = 3
    clusters = CLUSTERS
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2)},
        weights={
            "WD": (0.0, 1e-5, 1e-4, 1e-3),
            "Ort": (0.0, 1e-2, 1e-1, 1.0),
            "Pre": (1.0, 3.0, 10.0, 30.0),
            **dict.fromkeys(OURS, (0.0, 1e-2, 1e-1, 1.0)),
        },
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-7, 1e-6, 1e-5)),
        stages=("AA",),
        valid=0.25,
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Texture against shape, split by shape picture",
        section="texture and shape (the stimuli of Geirhos et al., 2019)",
        summary=(
            "A small net learns 16 classes of stylised pictures, each one shape in many textures, with a regulariser "
            "(A), then goes on without it (AA). It is tested on shape pictures that it has not seen: stylised, as "
            "edges and as silhouettes. The paper has 44.2 % for Std, 47.0 % for Ort and 54.7 % for RR. A random split, "
            "which shows every shape in training, stands beside it."
        ),
        paper=PAPER,
        figures=all_figures,
        paper_table=paper_table,
    )

    def configs(self, config: TextureShapeConfig, folder: Path | None) -> Sequence[TextureShapeConfig]:
        """One configuration for each fold; with the split by shape picture, also one for Std trained longer and one for
        RR with fewer weights."""
        folds = range(FOLDS) if config.fold is None else (config.fold,)
        configs = [replace(config, fold=fold) for fold in folds]
        if config.split == "random" or config.valid or config.longer or config.reduced:
            return configs
        reduced = [] if config.slim == 1 else [replace(config, reduced=True) for config in configs]
        return [longer for config in configs for longer in with_longer(config)] + reduced

    def sources(self, config: TextureShapeConfig) -> tuple[Source, ...]:
        return (TEXTURE_SHAPE,)

    def data(self, config: TextureShapeConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        return tasks(config, seed, folder)

    def network(self, config: TextureShapeConfig, dropout: float = 0.0) -> nn.Module:
        """Make the net, with other initial weights in every fold, so that folds do not share a random draw."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.seed_of(self.name, torch.initial_seed(), config.fold))
            return three_blocks(
                config.channels,
                config.depth,
                norm=config.norm == "batch",
                start=config.start,
                size=config.size,
                classes=len(CLASSES),
            )

    def stages(self, config: TextureShapeConfig) -> tuple[Stage, ...]:
        """Two stages: A with the regulariser, then AA without. Only Std is trained longer, and only RR with fewer
        weights."""
        only = ("Std",) if config.longer else ("RR",) if config.reduced else None
        first = Stage("A", epochs=config.long_epochs if config.longer else None, variants=only)
        return first, Stage("AA", after="A", regularised=False, epochs=config.finetune, variants=only)

    def weight(self, config: TextureShapeConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=3.0)

    def reverse(self, config: TextureShapeConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: all convolutions have a reverse loss, the classifier has none."""
        return {**config.loss, "weight": {"features*": 1.0}}

    def recipe(self, config: TextureShapeConfig, stage: Stage) -> Recipe:
        if config.augment == "none":
            return Recipe()
        return Recipe(shift=round(SHIFT * config.size), zoom=ZOOM)

    def measure(self, config: TextureShapeConfig, trained: Trained) -> Measured:
        return measure(config, trained, self.reverse(config))
