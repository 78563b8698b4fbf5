"""Runs of texture-shape as its figures show them: rows of one kind of net, and their means over folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from racecar.lab.experiments.texture_shape.splitting import CLUSTERS
from racecar.lab.report.clustered import estimate_of
from racecar.lab.report.groups import collect
from racecar.lab.report.statistics import Estimate
from racecar.lab.training.loss_config import LOSS, PAPER, loss_name
from racecar.lab.training.variants import VARIANTS

if TYPE_CHECKING:
    from racecar.lab.running.run import Run

BESIDE = ("fold", "split", "longer", "reduced", "strength", *LOSS)
"""Settings that one figure shows side by side."""
USUAL = ("Std", "Ort", "RR")
"""Nets whose pictures are shown."""


def name_of(run: Run) -> str:
    """As "RR", "RR, the paper's loss", "RR, fewer weights" or "Std, longer"."""
    more = [("longer", "longer"), ("reduced", "fewer weights")]
    said = [run.variant, *(text for field, text in more if run.config[field])]
    if VARIANTS[run.variant].kind == "reverse" and {name: run.config[name] for name in LOSS} == PAPER:
        said.append(f"{loss_name(PAPER)} loss")
    return ", ".join(said)


def rows(runs: Sequence[Run], stage: str, split: str = "shape") -> dict[str, list[Run]]:
    """Name → runs of a stage and split that ended well: the variants in our order, then what differs in more."""
    some = [run for run in runs if run.finished and run.stage == stage and run.config["split"] == split]
    order = list(VARIANTS)
    some.sort(key=lambda run: (name_of(run) != run.variant, order.index(run.variant), name_of(run)))
    return collect((name_of(run), run) for run in some)


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
