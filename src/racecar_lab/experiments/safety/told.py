"""What the safety map says of itself: sentences and two tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from racecar_lab.experiments.safety.config import GUIDES, OWN
from racecar_lab.experiments.safety.design import DEPTHS, LOSSES, NORMS, SUMMED, Context, Loss, Setting, place_of
from racecar_lab.experiments.safety.rule import CONFIRMING, FRESH, MapCell, Row, Verdict, by_loss, judge
from racecar_lab.report import words
from racecar_lab.report.groups import plain
from racecar_lab.report.page_table import Cell, Column, Table, number_cell, word_cell
from racecar_lab.running.run import Run

BEST = 8
"""Settings that are listed."""


class Rows(NamedTuple):
    """The nets of a map, and how many of other settings were left out."""

    rows: Sequence[Row]
    left_out: int


def rows_of(runs: Iterable[Run]) -> Rows:
    """Runs as the rule takes them. Nets that were trained or measured in another way than most are no part of it."""
    runs = [run for run in runs if run.record["experiment"] == "safety"]
    ways = [_way(run) for run in runs]
    usual = Counter(ways).most_common(1)[0][0] if ways else ()
    rows = [_row(run) for run, way in zip(runs, ways, strict=True) if way == usual]
    return Rows(rows, len(runs) - len(rows))


def _way(run: Run) -> tuple[object, ...]:
    mine = {name: value for name, value in run.record["config"].items() if name not in (*OWN, *GUIDES, "design")}
    return tuple((name, plain(mine[name])) for name in sorted(mine))


def _row(run: Run) -> Row:
    """Names the record of which it can make none."""
    try:
        return _row_of(run)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"record {run.id} has a bad setting ({type(error).__name__}: {error}); delete it") from None


def _row_of(run: Run) -> Row:
    c, metrics = run.record["config"], run.metrics
    setting = None
    if run.coefficient is not None:
        setting = Setting(
            Loss(c["gradient"], c["scale"], c["mode"], c["layers"]), place_of(c["scale"], run.coefficient)
        )
    context = Context(c["depth"], c["start"], c["norm"], c["lr"])
    dead = not run.finished or bool(metrics.get("dead", 1.0))
    return Row(setting, context, run.seed, dead, metrics.get("source_accuracy"), metrics.get("probe_10"))


def told(runs: Iterable[Run]) -> tuple[list[str], list[Table]]:
    """The outcome of the rule, what comes next, and where nets died. Of runs that are no evidence, the last alone."""
    runs = list(runs)
    judged = not any(run.purpose for run in runs)
    rows, left_out = rows_of(runs)
    verdict = judge(rows)
    nets = sum(row.setting is not None for row in rows)
    notes = [
        *([_chosen(verdict)] if judged else []),
        f"{words.count(nets, 'net')} with a reverse loss beside {words.count(verdict.plain, 'plain twin')}, "
        f"{verdict.plain_dead} of which are dead themselves: plain training works in {verdict.working} of "
        f"{verdict.contexts} contexts, and what follows is of those. {len(verdict.safe)} of {len(verdict.cells)} "
        f"settings are safe, {len(verdict.harmless)} harmless, {len(verdict.order)} both.",
    ]
    refuted = [one for one in verdict.order if one in verdict.fresh and verdict.fresh[one].killed]
    notes += [f"Refuted on fresh seeds: {one}. {_deaths(verdict.fresh[one])}." for one in refuted]
    if verdict.alone:
        notes.append(f"{words.count(verdict.alone, 'net')} without a plain twin left out.")
    if left_out:
        notes.append(f"{words.count(left_out, 'net')} trained or measured in another way than most left out.")
    if any(one.loss.scale == "sum" for one in verdict.cells):
        notes.append(f"For scale sum, the λ of figure and tables is {SUMMED:,.0f} times the true one.")
    tables = [*([_best(verdict)] if judged else []), _losses(verdict)] if verdict.cells else []
    tables += [fresh_table(verdict)] if verdict.fresh else []
    return notes, tables


def _chosen(verdict: Verdict) -> str:
    one = verdict.chosen
    if one is None:
        return "No setting is both safe and harmless: nothing is chosen."
    cell, fresh = verdict.cells[one], verdict.fresh.get(one)
    gain = f"the probe gains {_points(cell.gain)} ± {100 * cell.error:.1f} points (standard error)"
    if verdict.confirmed and fresh is not None:
        how = f"confirmed: none of {fresh.nets} nets killed in all contexts, on fresh seeds"
    else:
        how = (
            "not confirmed yet: racecar run safety --set design=confirm "
            f"--set losses={one.spelling} --first-seed {FRESH} --seeds {CONFIRMING}"
        )
    return f"Chosen: {one}; {gain}; {how}."


def _points(value: float | None) -> str:
    return words.NONE if value is None else f"{100 * value:+.1f}".replace("-", "−")


def _deaths(cell: MapCell) -> str:
    """Where nets were killed: the levels of each factor with their share of them."""
    count = len(cell.killed)
    text = [f"{count} of {words.count(cell.nets, 'net')} killed"]
    for name in ("norm", "start", "depth", "lr"):
        levels = Counter(getattr(context, name) for context, _ in cell.killed)
        text.append(f"{name} " + ", ".join(f"{level:g}" if name == "lr" else f"{level}" for level in sorted(levels)))
    return "; ".join(text)


def _best(verdict: Verdict) -> Table:
    """The settings that are first in the rule's order."""
    columns = [
        Column("place", "number"), Column("setting"), Column("λ", "number"), Column("gain, points", "number"),
        Column("± se", "number"), Column("source accuracy, points: none"), Column("batch"), Column("group"),
        Column("nets", "number"),
    ]  # fmt: skip
    rows = []
    for i, one in enumerate(verdict.order[:BEST], 1):
        cell = verdict.cells[one]
        rows.append([
            number_cell(i, str), Cell(str(one.loss)), number_cell(one.place, lambda v: f"{v:g}"),
            number_cell(cell.gain, _points), number_cell(cell.error, lambda v: f"{100 * v:.1f}"),
            *(word_cell(_points(cell.source.get(norm))) for norm in ("none", "batch", "group")),
            number_cell(cell.nets, str),
        ])  # fmt: skip
    return Table.of("Safe and harmless, in the order of the rule", columns, rows)


def fresh_table(verdict: Verdict) -> Table:
    """What was run in all contexts on fresh seeds: deaths, and by norm what the probe and the source gain."""
    columns = [
        Column("setting"), Column("λ", "number"), Column("killed", "number"), Column("of nets", "number"),
        *(Column(f"probe, no norm, depth {depth}", "number") for depth in DEPTHS),
        *(Column(f"{what}, {norm}", "number") for what in ("probe", "source") for norm in NORMS),
    ]  # fmt: skip
    rows = []
    for one in sorted(verdict.fresh, key=lambda one: (LOSSES.index(one.loss), one.place)):
        cell = verdict.fresh[one]
        rows.append([
            Cell(str(one.loss)), number_cell(one.place, lambda v: f"{v:g}"),
            number_cell(len(cell.killed), str), number_cell(cell.nets, str),
            *(_with_error(cell.plain_gains.get(depth)) for depth in DEPTHS),
            *(_with_error(cell.gains.get(norm)) for norm in NORMS),
            *(number_cell(cell.source.get(norm), _points) for norm in NORMS),
        ])  # fmt: skip
    return Table.of("All contexts, ten fresh seeds: points more than plain training (± standard error)", columns, rows)


def _with_error(found: tuple[float, float] | None) -> Cell:
    return (
        Cell(words.NONE) if found is None else Cell(f"{_points(found[0])} ± {100 * found[1]:.1f}", found[0], "number")
    )


def _losses(verdict: Verdict) -> Table:
    """For each loss the largest safe λ, and where it killed first."""
    columns = [
        Column("loss"), Column("safe up to λ", "number"), Column("best gain where safe, points", "number"),
        Column("kills from λ", "number"), Column("there"),
    ]  # fmt: skip
    rows = []
    for loss in (one for one in LOSSES if one in by_loss(verdict.cells)):
        places = by_loss(verdict.cells)[loss]
        cells = {place: verdict.cells[Setting(loss, place)] for place in places}
        safe = [place for place in places if Setting(loss, place) in verdict.safe]
        gains = [gain for place in safe if (gain := cells[place].gain) is not None]
        killers = [place for place in places if cells[place].killed]
        rows.append([
            Cell(str(loss)), number_cell(max(safe, default=None), lambda v: f"{v:g}"),
            number_cell(max(gains, default=None), _points),
            number_cell(min(killers, default=None), lambda v: f"{v:g}"),
            Cell(_deaths(cells[killers[0]]) if killers else ""),
        ])  # fmt: skip
    return Table.of("Every loss", columns, rows)
