"""Runs of texture-shape as its figures show them: rows of one kind of net, and their means over folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from racecar_lab.experiments.paper_figures import chosen, rows_of
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS
from racecar_lab.report.clustered import estimate_of
from racecar_lab.report.groups import by_setting
from racecar_lab.report.statistics import Estimate
from racecar_lab.training.loss_config import LOSS

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

BESIDE = ("fold", "split", "longer", "reduced", "strength", *LOSS)
"""Settings that one figure shows side by side."""
KINDS: dict[str, tuple[str, object]] = {"fewer weights": ("reduced", True), "longer": ("longer", True)}
"""What a row's name says beside the variant."""
SETTINGS = {
    ("none", "torch", "none"): "paper-like",
    ("strong", "he", "none"): "strong",
    ("strong", "he", "batch"): "strong, batch norm",
}
"""What is published, in its order: augmentation, first weights and norm, and a short name."""
USUAL = ("Std", "Ort", "RR")
"""Nets whose pictures are shown."""


def settings(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of one setting each, by what tells it from the others; those with a short name first."""
    found = by_setting(chosen(runs), BESIDE)
    return dict(sorted(found.items(), key=lambda one: [*SETTINGS, recipe(one[1])].index(recipe(one[1]))))


def recipe(runs: Sequence[Run]) -> tuple[str, str, str]:
    """Of runs of one setting: augmentation, first weights, norm."""
    config = runs[0].config
    return config["augment"], config["start"], config["norm"]


def rows(runs: Sequence[Run], stage: str, split: str = "shape") -> dict[str, list[Run]]:
    """Name → runs of a stage and split that ended well."""
    return rows_of([run for run in runs if run.stage == stage and run.config["split"] == split], KINDS)


def values(runs: Sequence[Run], metric: str) -> dict[tuple[int, int], float]:
    """By fold and seed, of nets that live."""
    return {
        (run.config["fold"], run.seed): float(run.metrics[metric])
        for run in runs
        if run.metrics.get(metric) is not None and not run.dead
    }


def mean_of(runs: Sequence[Run], metric: str) -> Estimate | None:
    """Of the folds' means."""
    return estimate_of(values(runs, metric), CLUSTERS)
