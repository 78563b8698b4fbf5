"""What the paper prints of texture and shape, and ours beside it: accuracies, ratios, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from racecar_lab.datasets.texture_shape import CLASSES
from racecar_lab.experiments.texture_shape.claims import PAPER, STAGE, TIME, WEIGHTS
from racecar_lab.experiments.texture_shape.rows import SETTINGS, mean_of, recipe, rows, settings, values
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS
from racecar_lab.report import words
from racecar_lab.report.about import credible, step_ratios
from racecar_lab.report.clustered import paired
from racecar_lab.report.page_table import Cell, Column, Table, number_cell

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

CHANCE = 100 / len(CLASSES)
"""Accuracy of a net that guesses, in %."""
FEWER, OTHER_LOSS = "RR, fewer weights", "RR, the paper's loss"


def paper_table(runs: Sequence[Run]) -> Table | None:
    """All that the paper prints, and a column of ours for each setting. None if nothing of it was run."""
    columns: dict[str, dict[str, tuple[Cell, Cell]]] = {}
    for name, some in settings(runs).items():
        if rows(some, STAGE):
            short = SETTINGS.get(recipe(some), "")
            columns[short if short and short not in columns else name.strip(" ()") or "ours"] = _ours(some)
    if not columns:
        return None
    names = dict.fromkeys(name for column in columns.values() for name in column)
    lines = [
        [Cell(name), next(column[name][0] for column in columns.values() if name in column)]
        + [column[name][1] if name in column else Cell(words.NONE, kind="number") for column in columns.values()]
        for name in names
    ]
    heads = [Column(""), Column("paper", "number"), *(Column(name, "number") for name in columns)]
    return Table("Paper and ours", heads, lines)


def _ours(runs: Sequence[Run]) -> dict[str, tuple[Cell, Cell]]:
    """What → the paper's figure and ours, of one setting."""
    nets, printed = rows(runs, STAGE), {one.variant: one.value for one in PAPER}
    found = {}
    for name in ("Std", "Ort", "RR", OTHER_LOSS):
        if name in nets:
            paper = number_cell(100 * printed[name.split(",")[0]], "{:.1f}".format)
            found[f"stylised pictures, accuracy in %: {name}"] = paper, _accuracy(nets[name])
    if FEWER in nets and "Ort" in nets:
        gain = _gain(nets[FEWER], nets["Ort"])
        found[f"the same, points: {FEWER}, over Ort"] = Cell("≥ 0", 0.0, "number"), number_cell(gain, _signed)
    for name, (ours, paper_ratio) in found_ratios(runs).items():
        note = _edges(nets["RR"]) if name.startswith("edges") else ""
        own = replace(number_cell(ours, _signed), note=note)
        found[f"{name}, in %".replace("\n", " ")] = number_cell(paper_ratio, _signed), own
    return found


def _edges(runs: Sequence[Run]) -> str:
    """How much there is to compare."""
    mean = mean_of(runs, "edges_accuracy")
    return "" if mean is None else f"RR {100 * mean.mean:.1f} %, chance {CHANCE:.1f} %"


def _accuracy(runs: Sequence[Run]) -> Cell:
    """Mean of the folds, its interval, and how many nets are not in it."""
    mean, dead = mean_of(runs, "test_accuracy"), sum(run.dead for run in runs)
    if mean is None:
        return Cell(words.NONE)
    ends = mean.interval()
    said = [] if ends is None else [f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"]
    if dead:
        said.append(f"{dead} of {len(runs)} dead")
    return Cell(f"{100 * mean.mean:.1f}", 100 * mean.mean, "number", note="; ".join(said))


def _gain(one: Sequence[Run], other: Sequence[Run]) -> float | None:
    """In points, mean of the folds."""
    ours, theirs = paired(values(one, "test_accuracy"), values(other, "test_accuracy"), CLUSTERS)
    return 100 * (sum(ours.values()) - sum(theirs.values())) / len(ours) if ours else None


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def found_ratios(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """What the paper prints as a ratio → ours and its, in %; of RR with the default loss."""
    nets, first = rows(runs, STAGE), rows(runs, "A")
    found = {}
    for name, paper in (("Std", 50.0), ("Ort", 16.75)):
        if "RR" in nets and name in nets:
            one, than = (values(nets[side], "edges_accuracy") for side in ("RR", name))
            ours, other = paired(one, than, CLUSTERS)
            if sum(other.values()):
                found[f"edges: accuracy of\nRR over {name}"] = (
                    100 * (sum(ours.values()) / sum(other.values()) - 1),
                    paper,
                )
    if "RR" in first and "Std" in first and (times := _times(first["RR"], first["Std"])):
        found["time of an epoch:\nRR over Std"] = 100 * (median(times) - 1), 100 * TIME
    if "RR" in nets and (few := nets.get("RR, fewer weights")):
        share = few[0].metrics["weights"] / nets["RR"][0].metrics["weights"]
        found["weights: reduced RR\nover all"] = 100 * (share - 1), 100 * (WEIGHTS - 1)
    return found


def _times(ours: Sequence[Run], std: Sequence[Run]) -> list[float]:
    """Of the same fold and seed; empty if the machine did other work."""
    one, other = ({(run.config["fold"], run.seed): run for run in runs} for runs in (ours, std))
    ratios = step_ratios(one, other, alone=True) or step_ratios(one, other)
    return ratios if ratios and credible(ratios) else []
