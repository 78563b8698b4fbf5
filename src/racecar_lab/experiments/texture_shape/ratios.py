"""The paper's accuracies and ratios about texture and shape, with our values for each."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from racecar_lab.datasets.texture_shape import CLASSES
from racecar_lab.experiments.texture_shape.claims import PAPER, STAGE, TIME, WEIGHTS
from racecar_lab.experiments.texture_shape.rows import SETTINGS, mean_of, recipe, rows, settings, values
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS
from racecar_lab.report import words
from racecar_lab.report.clustered import paired
from racecar_lab.report.costs import credible, step_ratios
from racecar_lab.report.page_table import Cell, Table, number_cell

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

CHANCE = 100 / len(CLASSES)
"""Accuracy of a net that guesses at random, in %."""
FEWER, OTHER_LOSS = "RR, fewer weights", "RR, the paper's loss"


def paper_table(runs: Sequence[Run]) -> Table | None:
    """Table of the paper's numbers with a column of ours for each setting; None without a run of the paper's stage."""
    columns: dict[str, dict[str, tuple[Cell, Cell]]] = {}
    for name, members in settings(runs).items():
        if rows(members, STAGE):
            short = SETTINGS.get(recipe(members), "")
            columns[short if short and short not in columns else name.strip(" ()") or "ours"] = _column(members)
    if not columns:
        return None
    names = dict.fromkeys(name for column in columns.values() for name in column)
    none = number_cell(None, str)
    lines = [
        {
            "": Cell(name),
            "paper": next(column[name][0] for column in columns.values() if name in column),
            **{head: column[name][1] if name in column else none for head, column in columns.items()},
        }
        for name in names
    ]
    return Table("Paper and ours", lines)


def _column(runs: Sequence[Run]) -> dict[str, tuple[Cell, Cell]]:
    """A column of the table for the runs of one setting: name of a row → cells with the paper's value and ours."""
    nets, printed = rows(runs, STAGE), {number.variant: number.value for number in PAPER}
    cells = {}
    for name in ("Std", "Ort", "RR", OTHER_LOSS):
        if name in nets:
            paper = number_cell(100 * printed[name.split(",")[0]], "{:.1f}".format)
            cells[f"stylised pictures, accuracy in %: {name}"] = paper, _accuracy(nets[name])
    if FEWER in nets and "Ort" in nets:
        gain = _gain(nets[FEWER], nets["Ort"])
        cells[f"the same, points: {FEWER}, over Ort"] = Cell("≥ 0", 0.0, "number"), number_cell(gain, _signed)
    for name, (ours, paper_ratio) in paper_ratios(runs).items():
        note = _edges_note(nets["RR"]) if name.startswith("edges") else ""
        our_cell = number_cell(ours, _signed, note)
        cells[f"{name}, in %".replace("\n", " ")] = number_cell(paper_ratio, _signed), our_cell
    return cells


def _edges_note(runs: Sequence[Run]) -> str:
    """Text with RR's accuracy on edges next to chance, which shows what a ratio of such accuracies is worth."""
    mean = mean_of(runs, "edges_accuracy")
    return "" if mean is None else f"RR {100 * mean.mean:.1f} %, chance {CHANCE:.1f} %"


def _accuracy(runs: Sequence[Run]) -> Cell:
    """A table cell with the mean accuracy over the folds; its note has the 95 % interval and the number of dead nets,
    which are left out."""
    mean, dead = mean_of(runs, "test_accuracy"), sum(run.dead for run in runs)
    if mean is None:
        return Cell(words.NONE)
    ends = mean.interval()
    notes = [] if ends is None else [f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}"]
    if dead:
        notes.append(f"{dead} of {len(runs)} dead")
    return Cell(f"{100 * mean.mean:.1f}", 100 * mean.mean, "number", note="; ".join(notes))


def _gain(runs: Sequence[Run], reference: Sequence[Run]) -> float | None:
    """Mean gain in accuracy of some runs over reference runs, in points, from the folds that both have; None without
    any."""
    ours, theirs = paired(values(runs, "test_accuracy"), values(reference, "test_accuracy"), CLUSTERS)
    return 100 * (sum(ours.values()) - sum(theirs.values())) / len(ours) if ours else None


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def paper_ratios(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Name of a ratio that the paper prints → our value and the paper's, each as a change in %. RR has the default
    loss."""
    nets, first = rows(runs, STAGE), rows(runs, "A")
    ratios = {}
    for name, paper in (("Std", 50.0), ("Ort", 16.75)):
        if "RR" in nets and name in nets:
            ours, theirs = paired(values(nets["RR"], "edges_accuracy"), values(nets[name], "edges_accuracy"), CLUSTERS)
            if total := sum(theirs.values()):
                ratios[f"edges: accuracy of\nRR over {name}"] = 100 * (sum(ours.values()) / total - 1), paper
    if "RR" in first and "Std" in first and (times := _times(first["RR"], first["Std"])):
        ratios["time of an epoch:\nRR over Std"] = 100 * (median(times) - 1), 100 * TIME
    if "RR" in nets and (reduced := nets.get(FEWER)):
        share = reduced[0].metrics["weights"] / nets["RR"][0].metrics["weights"]
        ratios["weights: reduced RR\nover all"] = 100 * (share - 1), 100 * (WEIGHTS - 1)
    return ratios


def _times(ours: Sequence[Run], std: Sequence[Run]) -> list[float]:
    """Time of training of our runs divided by that of Std's, for each fold and seed that both have; empty if the
    machine did other work meanwhile."""
    our_runs, std_runs = ({(run.config["fold"], run.seed): run for run in runs} for runs in (ours, std))
    ratios = step_ratios(our_runs, std_runs, alone=True) or step_ratios(our_runs, std_runs)
    return ratios if ratios and credible(ratios) else []
