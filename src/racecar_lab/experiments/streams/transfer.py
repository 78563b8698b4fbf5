"""What a search of streams tells besides its choice: how much the learning rate matters, and which λ does for all.

A λ transfers if one setting for all streams and nets loses at most ``LOSS`` to each one's own best, and its first task
at most ``FIRST`` to plain training with the same learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from racecar_lab.experiments.streams.cells import Where, by_method
from racecar_lab.report.groups import collect
from racecar_lab.report.page_table import Cell, Column, Table, number_cell, word_cell
from racecar_lab.streams.method import LEARNING_RATES

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

LOSS, FIRST = 0.03, 0.02
FORMS = {"linear": "λ as it is", "linear by ratio": "by the ratio of gradient norms", "linear decoupled": "decoupled"}

SettingKey = tuple[float, float, float]
"""Learning rate, strength, second number."""


class Tried(NamedTuple):
    """What a search tried of a method: means over its seeds by setting."""

    scores: Mapping[SettingKey, float]
    first: Mapping[SettingKey, float]
    """Of the first task."""


Cells = Mapping[Where, Mapping[str, Tried]]
"""Stream and net → method → what was tried."""


def setting_key(run: Run) -> SettingKey:
    config = {**run.config, **(run.record.get("tuned") or {})}
    return float(config["lr"]), float(run.coefficient or 0.0), float(config["second"])


def tried_in(where: Where, runs: Sequence[Run]) -> dict[str, Tried]:
    """Method → what was tried, from the runs of a search."""
    metrics = where.judged_by, f"first_{where.judged_by}"
    return {name: Tried(*(_means(some, metric) for metric in metrics)) for name, some in by_method(runs).items()}


def _means(runs: Sequence[Run], metric: str) -> dict[SettingKey, float]:
    """Of each setting; one without a number in a seed is left out."""
    values = collect((setting_key(run), run.metrics.get(metric)) for run in runs)
    return {key: mean(v for v in some if v is not None) for key, some in values.items() if None not in some}


def area(found: Mapping[SettingKey, float], optimiser: str) -> float | None:
    """Mean height of the curve of the best score at each learning rate, its logarithm going over the range that all
    methods have; between two rates that were tried it is a straight line. None where the range was not tried."""
    best = {lr: max(v for (other, *_), v in found.items() if other == lr) for lr, *_ in found}
    points = sorted((math.log10(lr), value) for lr, value in best.items())
    low, high = (math.log10(end(LEARNING_RATES[optimiser])) for end in (min, max))
    at = [low, *(x for x, _ in points if low + 1e-9 < x < high - 1e-9), high]
    curve = [(x, height) for x in at if (height := _line(points, x)) is not None]
    if len(curve) < len(at):
        return None
    return sum((b - a) * (y + z) / 2 for (a, y), (b, z) in pairwise(curve)) / (high - low)


def _line(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The height at x of the line through sorted points; None outside of them."""
    if not points or not points[0][0] - 1e-9 <= x <= points[-1][0] + 1e-9:
        return None
    for (a, y), (b, z) in pairwise(points):
        if x <= b:
            return y + (z - y) * max(0.0, x - a) / (b - a)
    return points[-1][1]


def search_tables(cells: Cells) -> list[Table]:
    """All that a search tells; nothing of no search."""
    return [*(area_table(where, some) for where, some in cells.items()), *([transfer_table(cells)] if cells else [])]


def area_table(where: Where, methods: Mapping[str, Tried]) -> Table:
    """What was chosen for each method, and how much of it is left where the learning rate is another."""
    columns = [
        Column("method"), Column("settings", "number"), Column("chosen"), Column("best, %", "number"),
        Column("over learning rates, %", "number"), Column("first task of the chosen, %", "number"),
    ]  # fmt: skip
    rows = []
    for name, (found, firsts) in methods.items():
        if not found:
            continue
        best = max(found, key=lambda one: found[one])
        first = firsts.get(best)
        rows.append([
            word_cell(name), number_cell(len(found), str), word_cell(told_setting(best)),
            _percent(found[best]), _percent(area(found, where.optimiser)), _percent(first),
        ])  # fmt: skip
    return Table.of(f"{where}: what the search found, mean over its seeds", columns, rows)


class Transfer(NamedTuple):
    """The one setting of a form of λ that is best for all cells."""

    setting: SettingKey
    losses: Mapping[Where, float]
    """Points that it loses to each cell's best setting of that form."""
    first: Mapping[Where, float]
    """Points that its first task loses to plain training with the same learning rate, where that is known."""

    @property
    def holds(self) -> bool:
        """Whether λ transfers over the cells that were run, of which it takes two."""
        return (
            len(self.losses) > 1
            and max(self.losses.values()) <= LOSS
            and max(self.first.values(), default=math.inf) <= FIRST
        )


def transfer(cells: Cells, name: str) -> Transfer | None:
    """Of all settings that were tried in every cell: of those whose first tasks lose no more than ``FIRST``, or of all
    if there is none, the one with the smallest largest loss. None where no setting was tried in all."""
    cells = {where: methods for where, methods in cells.items() if name in methods}
    scores = {where: methods[name].scores for where, methods in cells.items()}
    first = {where: methods[name].first for where, methods in cells.items()}
    plain = {where: methods["Std"].first if "Std" in methods else {} for where, methods in cells.items()}
    common = set.intersection(*(set(one) for one in scores.values())) if scores else set()
    if not common:
        return None
    every = []
    for setting in sorted(common):
        losses = {where: max(some.values()) - some[setting] for where, some in scores.items()}
        behind = {}
        for where, some in plain.items():
            points = sorted((math.log10(lr), value) for (lr, *_), value in some.items())
            height = _line(points, math.log10(setting[0]))
            if height is not None and setting in first[where]:
                behind[where] = height - first[where][setting]
        every.append(Transfer(setting, losses, behind))
    harmless = [one for one in every if max(one.first.values(), default=math.inf) <= FIRST]
    return min(harmless or every, key=lambda one: max(one.losses.values()))


def transfer_table(cells: Cells) -> Table:
    """Whether one λ does for all streams and nets, in each of the forms that it may have; cells of one optimiser."""
    columns = [
        Column("λ"), Column("optimiser"), Column("cells", "number"), Column("one setting for all"),
        Column("largest loss, points", "number"), Column("there"), Column("largest loss of the first task", "number"),
        Column("at first there"), Column("transfers"),
    ]  # fmt: skip
    rows = []
    for optimiser in dict.fromkeys(where.optimiser for where in cells):
        alike = {where: methods for where, methods in cells.items() if where.optimiser == optimiser}
        for name, form in FORMS.items():
            if (one := transfer(alike, name)) is None:
                continue
            there, first = (max(some, key=lambda cell: some[cell], default=None) for some in (one.losses, one.first))
            assert there is not None
            rows.append([
                Cell(form), word_cell(optimiser), number_cell(len(one.losses), str),
                word_cell(told_setting(one.setting)), number_cell(100 * one.losses[there], lambda v: f"{v:.1f}"),
                word_cell(str(there)),
                number_cell(None if first is None else 100 * one.first[first], lambda v: f"{v:.1f}"),
                word_cell("" if first is None else str(first)), word_cell("yes" if one.holds else "no"),
            ])  # fmt: skip
    return Table("Does one λ do for all streams and nets?", columns, rows)


def told_setting(setting: SettingKey) -> str:
    lr, strength, second = setting
    more = [f"strength {strength:.3g}"] if strength else []
    return ", ".join([f"lr {lr:.3g}", *more, *([f"and {second:.3g}"] if second else [])])


def _percent(value: float | None) -> Cell:
    return number_cell(None if value is None else 100 * value, lambda v: f"{v:.1f}")
