"""Evaluation of a search on streams: how sensitive methods are to the learning rate, and whether one λ suits all.

A λ transfers if one setting for all streams and nets loses at most ``LOSS`` to the best setting of each of them, and on
the first task at most ``FIRST`` to plain training with the same learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from racecar_lab.experiments.streams.conditions import Conditions, by_method
from racecar_lab.report.groups import collect
from racecar_lab.report.page_table import Cell, Table, number_cell, word_cell
from racecar_lab.streams.method import LEARNING_RATES

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

LOSS, FIRST = 0.03, 0.02
"""Largest losses of accuracy with which one λ for all streams still counts as transferring: over the second half of the
tasks, and on the first task."""
FORMS = {"linear": "λ as it is", "linear by ratio": "by the ratio of gradient norms", "linear decoupled": "decoupled"}
"""Name of a method that is "linear" with λ applied in some way → this way in words."""

SettingKey = tuple[float, float, float]
"""A setting: learning rate, weight and second number of a method, 0 where it has none."""


class SearchScores(NamedTuple):
    """Accuracies of all settings of a method that a search tried, each setting → mean over the seeds of the search."""

    scores: Mapping[SettingKey, float]
    """Setting → accuracy over the second half of the tasks, by which the search chooses."""
    first: Mapping[SettingKey, float]
    """Setting → accuracy on the first task."""


ScoresByConditions = Mapping[Conditions, Mapping[str, SearchScores]]
"""Conditions → name of a method → the accuracies of its settings in a search."""


def setting_key(run: Run) -> SettingKey:
    """The setting with which a run was trained."""
    config = {**run.config, **(run.record.get("tuned") or {})}
    return float(config["lr"]), float(run.weight or 0.0), float(config["second"])


def scores_of_runs(conditions: Conditions, runs: Sequence[Run]) -> dict[str, SearchScores]:
    """Name of a method → the accuracies of its settings, from the runs of a search under these conditions."""
    metrics = conditions.judged_by, f"first_{conditions.judged_by}"
    return {
        method: SearchScores(*(_means(runs_of_method, metric) for metric in metrics))
        for method, runs_of_method in by_method(runs).items()
    }


def _means(runs: Sequence[Run], metric: str) -> dict[SettingKey, float]:
    """Setting → mean of a metric over its runs; a setting with a run that has no value is left out."""
    values = collect((setting_key(run), run.metrics.get(metric)) for run in runs)
    return {
        setting: mean(value for value in values_of_setting if value is not None)
        for setting, values_of_setting in values.items()
        if None not in values_of_setting
    }


def area(scores: Mapping[SettingKey, float], optimiser: str) -> float | None:
    """The best score at each learning rate, averaged over learning rates: the area under the curve of the best score
    over log lr, divided by the length of the range of ``LEARNING_RATES``, which all methods have.

    Between tried learning rates the curve is a straight line. None if they do not cover the range.
    """
    best = {lr: max(score for (other, *_), score in scores.items() if other == lr) for lr, *_ in scores}
    points = sorted((math.log10(lr), value) for lr, value in best.items())
    low, high = (math.log10(end(LEARNING_RATES[optimiser])) for end in (min, max))
    at = [low, *(x for x, _ in points if low + 1e-9 < x < high - 1e-9), high]
    curve = [(x, height) for x in at if (height := _line(points, x)) is not None]
    if len(curve) < len(at):
        return None
    return sum((b - a) * (y + z) / 2 for (a, y), (b, z) in pairwise(curve)) / (high - low)


def _line(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The value at x of the piecewise linear curve through points sorted by x; None outside their range."""
    if not points or not points[0][0] - 1e-9 <= x <= points[-1][0] + 1e-9:
        return None
    for (a, y), (b, z) in pairwise(points):
        if x <= b:
            return y + (z - y) * max(0.0, x - a) / (b - a)
    return points[-1][1]


def search_tables(searches: ScoresByConditions) -> list[Table]:
    """The tables of searches: one of the chosen settings for each of the conditions, then one that tells whether a λ
    transfers. No tables without searches."""
    tables = [area_table(conditions, scores) for conditions, scores in searches.items()]
    return [*tables, transfer_table(searches)] if searches else []


def area_table(conditions: Conditions, methods: Mapping[str, SearchScores]) -> Table:
    """Table of every method under the same conditions: the chosen setting, its score, and the score averaged over
    learning rates, which shows how much the choice of the learning rate matters."""
    rows = []
    for name, (scores, first_scores) in methods.items():
        if not scores:
            continue
        best = max(scores, key=scores.__getitem__)
        first = first_scores.get(best)
        rows.append({
            "method": word_cell(name), "settings": number_cell(len(scores), str),
            "chosen": word_cell(format_setting(best)), "best, %": _percent(scores[best]),
            "over learning rates, %": _percent(area(scores, conditions.optimiser)),
            "first task of the chosen, %": _percent(first),
        })  # fmt: skip
    return Table.of(f"{conditions}: what the search found, mean over its seeds", rows)


class Transfer(NamedTuple):
    """The best single setting of a method for all conditions, and the accuracy that it loses to settings of their
    own."""

    setting: SettingKey
    losses: Mapping[Conditions, float]
    """Conditions → accuracy that the setting loses to the method's best setting there."""
    first: Mapping[Conditions, float]
    """Conditions → accuracy that the setting loses on the first task to plain training with the same learning rate,
    where this is known."""

    @property
    def holds(self) -> bool:
        """True if λ transfers: there are at least two conditions, and the losses are known, at most ``LOSS``, and at
        most ``FIRST`` on the first task."""
        return (
            len(self.losses) > 1
            and max(self.losses.values()) <= LOSS
            and max(self.first.values(), default=math.inf) <= FIRST
        )


def transfer(searches: ScoresByConditions, method: str) -> Transfer | None:
    """Find the best single setting of a method for all conditions: of the settings that were tried under all of them,
    the one whose largest loss of accuracy is smallest.

    Settings that lose more than ``FIRST`` on a first task are chosen only if there are no others. None if no setting
    was tried under all conditions.
    """
    searches = {conditions: methods for conditions, methods in searches.items() if method in methods}
    scores = {conditions: methods[method].scores for conditions, methods in searches.items()}
    first = {conditions: methods[method].first for conditions, methods in searches.items()}
    plain = {conditions: methods["Std"].first if "Std" in methods else {} for conditions, methods in searches.items()}
    common = set.intersection(*map(set, scores.values())) if scores else set()
    if not common:
        return None
    candidates = []
    for setting in sorted(common):
        losses = {conditions: max(tried.values()) - tried[setting] for conditions, tried in scores.items()}
        first_losses = {}
        for conditions, by_setting in plain.items():
            points = sorted((math.log10(lr), accuracy) for (lr, *_), accuracy in by_setting.items())
            accuracy_of_plain = _line(points, math.log10(setting[0]))
            if accuracy_of_plain is not None and setting in first[conditions]:
                first_losses[conditions] = accuracy_of_plain - first[conditions][setting]
        candidates.append(Transfer(setting, losses, first_losses))
    harmless = [candidate for candidate in candidates if max(candidate.first.values(), default=math.inf) <= FIRST]
    return min(harmless or candidates, key=lambda candidate: max(candidate.losses.values()))


def transfer_table(searches: ScoresByConditions) -> Table:
    """Table that tells whether one λ suits all streams and nets: a row for each optimiser and each way of applying
    λ."""
    rows = []
    for optimiser in dict.fromkeys(conditions.optimiser for conditions in searches):
        same_optimiser = {
            conditions: methods for conditions, methods in searches.items() if conditions.optimiser == optimiser
        }
        for method, form in FORMS.items():
            if (best := transfer(same_optimiser, method)) is None:
                continue
            worst = max(best.losses, key=best.losses.__getitem__)
            worst_first = max(best.first, key=best.first.__getitem__, default=None)
            rows.append({
                "λ": Cell(form), "optimiser": word_cell(optimiser), "cells": number_cell(len(best.losses), str),
                "one setting for all": word_cell(format_setting(best.setting)),
                "largest loss, points": _percent(best.losses[worst]), "there": word_cell(str(worst)),
                "largest loss of the first task": _percent(None if worst_first is None else best.first[worst_first]),
                "at first there": word_cell("" if worst_first is None else str(worst_first)),
                "transfers": word_cell("yes" if best.holds else "no"),
            })  # fmt: skip
    return Table("Does one λ do for all streams and nets?", rows)


def format_setting(setting: SettingKey) -> str:
    """A setting in words, such as "lr 0.001, weight 3"; numbers that are 0 are left out."""
    lr, weight, second = setting
    parts = [f"lr {lr:.3g}"]
    parts += [f"weight {weight:.3g}"] if weight else []
    parts += [f"and {second:.3g}"] if second else []
    return ", ".join(parts)


def _percent(value: float | None) -> Cell:
    """A table cell with a number between 0 and 1 in per cent; empty for None."""
    return number_cell(None if value is None else 100 * value, lambda v: f"{v:.1f}")
