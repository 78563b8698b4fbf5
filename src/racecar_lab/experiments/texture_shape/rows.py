"""Runs of texture-shape by setting and kind of net, as figures and tables show them, and their means over folds."""

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

BESIDE = ("fold", "split", "longer", "reduced", "weight", *LOSS)
"""Fields of the configuration whose values one figure shows together; all other settings have figures of their own."""
KINDS: dict[str, tuple[str, object]] = {"fewer weights": ("reduced", True), "longer": ("longer", True)}
"""Suffix of a row's name, as "longer" in "Std, longer" → the field of the configuration and the value that it stands
for."""
SETTINGS = {
    ("none", "torch", "none"): "paper-like",
    ("strong", "he", "none"): "strong",
    ("strong", "he", "batch"): "strong, batch norm",
}
"""Published settings in their order: (augmentation, initial weights, norm) → a short name."""
USUAL = ("Std", "Ort", "RR")
"""Names of the nets that the figures of classes and pictures show."""


def settings(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Name of a setting → its runs. The name has the fields that differ; the published settings come first."""
    groups = by_setting(chosen(runs), BESIDE)

    def rank(name: str) -> int:
        return [*SETTINGS, recipe(groups[name])].index(recipe(groups[name]))

    return {name: groups[name] for name in sorted(groups, key=rank)}


def recipe(runs: Sequence[Run]) -> tuple[str, str, str]:
    """The recipe of the runs of one setting: augmentation, initial weights and norm."""
    config = runs[0].config
    return config["augment"], config["start"], config["norm"]


def rows(runs: Sequence[Run], stage: str, split: str = "shape") -> dict[str, list[Run]]:
    """Name of a row, such as "RR, fewer weights" → its runs, from one stage and one way of splitting."""
    return rows_of([run for run in runs if run.stage == stage and run.config["split"] == split], KINDS)


def values(runs: Sequence[Run], metric: str) -> dict[tuple[int, int], float]:
    """(fold, seed) → the value of a metric, without dead nets."""
    return {
        (run.config["fold"], run.seed): float(run.metrics[metric])
        for run in runs
        if run.metrics.get(metric) is not None and not run.dead
    }


def mean_of(runs: Sequence[Run], metric: str) -> Estimate | None:
    """Mean of a metric over the folds' means, with its interval; None without values."""
    return estimate_of(values(runs, metric), CLUSTERS)
