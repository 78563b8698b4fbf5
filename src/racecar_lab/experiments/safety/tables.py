"""The results of the safety map in sentences and three tables, for its page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from racecar_lab.experiments.safety.design import DEPTHS, LOSSES, NORMS, SUMMED, Setting, name_of
from racecar_lab.experiments.safety.rule import CONFIRMING, FRESH, Verdict, judge, nets_of
from racecar_lab.report import words
from racecar_lab.report.page_table import Cell, Table, number_cell, word_cell
from racecar_lab.running.run import Run

BEST = 8
"""Largest number of settings in the table of the best."""


def sentences_and_tables(runs: Iterable[Run]) -> tuple[list[str], list[Table]]:
    """Sentences and tables for the page: the outcome of the rule that chooses a default, the next step, and where nets
    died. Runs that are no evidence, such as quick ones, have no outcome."""
    runs = list(runs)
    evidence = not any(run.purpose for run in runs)
    nets = nets_of(runs)
    verdict = judge(nets)
    counts, cells = verdict.counts, verdict.cells
    notes = [
        *([_chosen(verdict)] if evidence else []),
        f"{words.count(int((nets.loss != '').sum()), 'net')} with a reverse loss beside "
        f"{words.count(counts['plain'], 'plain twin')}, {counts['dead']} of which are dead themselves: plain "
        f"training works in {counts['working']} of {counts['contexts']} contexts, and what follows is of those. "
        f"{len(verdict.safe)} of {len(cells)} settings are safe, {len(verdict.harmless)} harmless, "
        f"{len(verdict.order)} both.",
    ]
    for setting in verdict.order:
        if setting in verdict.fresh.index and verdict.fresh["nets", "killed"][setting]:
            notes.append(f"Refuted on fresh seeds: {name_of(setting)}. {_deaths(verdict, setting, fresh=True)}.")
    if counts["alone"]:
        notes.append(f"{words.count(counts['alone'], 'net')} without a plain twin left out.")
    if left_out := len(runs) - len(nets):
        notes.append(f"{words.count(left_out, 'net')} trained or measured in another way than most left out.")
    if any(":sum:" in loss for loss, _ in cells.index):
        notes.append(f"For scale sum, the λ of figure and tables is {SUMMED:,.0f} times the true one.")
    tables = [*([_best(verdict)] if evidence else []), _losses(verdict)] if len(cells) else []
    return notes, [*tables, *([fresh_table(verdict)] if len(verdict.fresh) else [])]


def _chosen(verdict: Verdict) -> str:
    """A sentence about the chosen setting, its gain, and its confirmation or the command for it."""
    chosen = verdict.chosen
    if chosen is None:
        return "No setting is both safe and harmless: nothing is chosen."
    gain = verdict.cells["gain"].loc[chosen]
    if verdict.confirmed:
        status = (
            f"confirmed: none of {verdict.fresh['nets', 'nets'][chosen]} nets killed in all contexts, on fresh seeds"
        )
    else:
        status = (
            "not confirmed yet: racecar run safety --set design=confirm "
            f"--set losses={chosen[0]}:{chosen[1]:g} --first-seed {FRESH} --seeds {CONFIRMING}"
        )
    gain_text = f"{_points(gain['mean'])} ± {100 * gain['error']:.1f} points (standard error)"
    return f"Chosen: {name_of(chosen)}; the probe gains {gain_text}; {status}."


def _points(value: float) -> str:
    """Text of a share or a difference of shares in points, with its sign, such as +1.2."""
    return words.NONE if value != value else f"{100 * value:+.1f}".replace("-", "−")


def _deaths(verdict: Verdict, setting: Setting, fresh: bool) -> str:
    """Text with the number of killed nets of a setting, and the levels of each factor at which nets were killed.
    ``fresh``: nets of the seeds for confirmation, not for the choice."""
    pairs = verdict.pairs
    nets = pairs[(pairs.loss == setting[0]) & (pairs.place == setting[1]) & ((pairs.seed >= FRESH) == fresh)]
    dead = nets[nets.dead]
    text = [f"{len(dead)} of {words.count(len(nets), 'net')} killed"]
    for name in ("norm", "start", "depth", "lr"):
        text.append(f"{name} " + ", ".join(map(str, sorted(dead[name].unique()))))
    return "; ".join(text)


def _number(value: float, write: Any = "{:g}".format) -> Cell:
    """A table cell with a number, turned into text by ``write``; NaN makes an empty cell."""
    return number_cell(None if value != value else value, write)


def _with_error(value: float, error: float) -> Cell:
    """A table cell with a difference of shares in points and its standard error."""
    return _number(value, lambda v: f"{_points(v)} ± {100 * error:.1f}")


def _best(verdict: Verdict) -> Table:
    """Table of the best settings that are safe and harmless, in the order of the rule."""
    rows = []
    for i, (loss, place) in enumerate(verdict.order[:BEST], 1):
        cell = verdict.cells.loc[loss, place]
        source = {norm: word_cell(_points(cell["source", norm])) for norm in NORMS}
        rows.append({
            "place": _number(i), "setting": Cell(loss.replace(":", " · ")), "λ": _number(place),
            "gain, points": _number(cell["gain", "mean"], _points),
            "± se": _number(cell["gain", "error"], lambda error: f"{100 * error:.1f}"),
            "source accuracy, points: none": source.pop("none"), **source, "nets": _number(cell["nets", "nets"]),
        })  # fmt: skip
    return Table.of("Safe and harmless, in the order of the rule", rows)


def fresh_table(verdict: Verdict) -> Table:
    """Table of the settings that were run in all contexts on fresh seeds: killed nets, and gains of probe and source
    accuracy."""
    rows = []
    for loss, place in sorted(verdict.fresh.index, key=lambda setting: (LOSSES.index(setting[0]), setting[1])):
        cell = verdict.fresh.loc[loss, place]
        rows.append({
            "setting": Cell(loss.replace(":", " · ")), "λ": _number(place),
            "killed": _number(cell["nets", "killed"]), "of nets": _number(cell["nets", "nets"]),
            **{f"probe, no norm, depth {depth}": _with_error(cell["depth", depth], cell["depth error", depth])
               for depth in DEPTHS},
            **{f"probe, {norm}": _with_error(cell["probe", norm], cell["probe error", norm]) for norm in NORMS},
            **{f"source, {norm}": _number(cell["source", norm], _points) for norm in NORMS},
        })  # fmt: skip
    return Table.of("All contexts, ten fresh seeds: points more than plain training (± standard error)", rows)


def _losses(verdict: Verdict) -> Table:
    """Table with a row for each loss: the largest λ that is safe by the rule of ``safety.rule``, and the smallest λ at
    which a net died that lives with plain training."""
    nan, rows = float("nan"), []
    for loss in (loss for loss in LOSSES if loss in verdict.cells.index):
        of_loss = verdict.cells.loc[loss]
        safe = of_loss[[(loss, place) in verdict.safe for place in of_loss.index]]
        killers = of_loss.index[of_loss["nets", "killed"] > 0]
        rows.append({
            "loss": Cell(loss.replace(":", " · ")), "safe up to λ": _number(max(safe.index, default=nan)),
            "best gain where safe, points": _number(safe["gain", "mean"].max(), _points),
            "kills from λ": _number(min(killers, default=nan)),
            "there": Cell(_deaths(verdict, (loss, killers[0]), fresh=False) if len(killers) else ""),
        })  # fmt: skip
    return Table.of("Every loss", rows)
