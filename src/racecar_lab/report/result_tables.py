"""What was measured and what it cost, as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median
from typing import Any

from racecar_lab.experiment import Paper
from racecar_lab.report import words
from racecar_lab.report.clustered import Key
from racecar_lab.report.groups import Group, Groups, Metric, collect, label, plain, printed_value
from racecar_lab.report.page_table import Cell, Column, Table, mean_cell, number_cell, word_cell
from racecar_lab.report.statistics import estimate

Rows = Sequence[Mapping[str, Any]]

_WHICH = (Column("stage"), Column("setting"))
_WHOSE = (Column("variant", "variant"), Column("λ", "number"), Column("tuned"))


def results_table(caption: str, groups: Groups, metrics: Sequence[Metric], paper: Sequence[Paper] = ()) -> Table:
    """Means of some metrics beside the paper's."""
    columns = [
        Column("metric"), *_WHICH, *_WHOSE, Column("paper", "number"), Column("ours", "number"),
        Column("ours − paper", "number"), Column("95 % interval", "number"), Column("runs", "number"), Column("note"),
    ]  # fmt: skip
    rows = []
    for stage, metric in metrics:
        for group in groups.of(stage=stage):
            mean, printed = group.mean_of(metric), printed_value(paper, group, metric)
            if mean is None and printed is None and not group.diverged:
                continue
            apart = None if mean is None or printed is None else mean.mean - printed.value
            ends = None if mean is None else mean.interval()
            rows.append([
                word_cell(metric), *_which(group), *_whose(group), _paper(printed), mean_cell(mean),
                Cell(words.signed(apart, mean.sd if mean else None), apart, "number"),
                Cell(words.interval(ends), None if ends is None else ends[0], "number"),
                _runs(group, metric), Cell("" if printed is None else printed.note),
            ])  # fmt: skip
    return Table.of(caption, columns, rows, keep=("paper", "ours") if paper else ("ours",))


def cost_table(groups: Groups, reference: str = "Std") -> Table:
    """Time for a step and memory, also as ratios to plain training in the same place; of stages with a regulariser."""
    ratios = [f"time × {reference}", f"memory × {reference}"]
    columns = [
        *_WHICH, *_WHOSE, Column("device"), Column("time per step", "number"), Column(ratios[0], "number"),
        Column("peak memory", "number"), Column(ratios[1], "number"), Column("runs", "number"),
    ]  # fmt: skip
    regularised = [group for group in groups.groups if group.regularised]
    places = [(group, place) for group in regularised or groups.groups for place in _places(group)]
    rows = []
    for group, place in places:
        same = groups.of(group.setting, group.stage, reference)
        time, memory = (_costs([group], place, name) for name in ("step_s", "peak_memory"))
        base_time, base_memory = (_costs(same, place, name) for name in ("step_s", "peak_memory"))
        rows.append([
            *_which(group), *_whose(group), Cell(place[1], kind="word", note=place[0] and f"engine {place[0]}"),
            _cost_cell(time.values(), words.seconds), _cost_cell(_paired(time, base_time), words.ratio),
            _cost_cell(memory.values(), words.size), _cost_cell(_paired(memory, base_memory), words.ratio),
            number_cell(sum(_place(run.record) == place for run in group.runs.values()), str),
        ])  # fmt: skip
    return Table.of("Time and memory during the runs, beside which the machine may have done other work", columns, rows)


def inner_tables(groups: Groups) -> list[Table]:
    """Tables that runs brought themselves (lists of objects), averaged over seeds.

    Rows of different runs are the same row if their words agree, and as many of their whole numbers as are needed to
    tell the rows of one run apart; all other numbers are averaged.
    """
    tables = collect(
        (name, (group, content))
        for group in groups.groups
        for run in group.runs.values()
        for name, content in run.tables.items()
        if isinstance(content, list) and content and all(isinstance(row, dict) for row in content)
    )
    return [_averaged(name, of_runs) for name, of_runs in tables.items()]


def _averaged(name: str, tables: Sequence[tuple[Group, Rows]]) -> Table:
    keys, measured = _roles([rows for _, rows in tables])
    same = collect(((group, *_pick(row, keys)), row) for group, rows in tables for row in rows)
    cells = [
        [
            *_which(group), *_whose(group), *map(_key_cell, key),
            *(mean_cell(estimate([row[field] for row in alike if _is_number(row.get(field))])) for field in measured),
            number_cell(len(alike), str),
        ]
        for (group, *key), alike in same.items()
    ]  # fmt: skip
    heads = [*map(Column, keys), *(Column(field, "number") for field in measured), Column("runs", "number")]
    return Table.of(name, [*_WHICH, *_WHOSE, *heads], cells)


def _roles(tables: Sequence[Rows]) -> tuple[list[str], list[str]]:
    """Fields that say which row it is, and fields that were measured."""
    fields = dict.fromkeys(field for rows in tables for row in rows for field in row)

    def only(field: str, kind: Any) -> bool:
        return all(row.get(field) is None or isinstance(row[field], kind) for rows in tables for row in rows)

    keys = [field for field in fields if not only(field, (int, float))]
    for field in fields:
        unique = all(len({_pick(row, keys) for row in rows}) == len(rows) for rows in tables)
        if not unique and field not in keys and only(field, int):
            keys.append(field)
    return keys, [field for field in fields if field not in keys]


def _pick(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(plain(row.get(field)) for field in keys)


def _which(group: Group) -> list[Cell]:
    return [word_cell(group.stage), word_cell(label(group.setting))]


def _whose(group: Group) -> list[Cell]:
    return [
        Cell(group.variant, kind="variant"),
        number_cell(group.weight, words.number),
        word_cell(label(group.tuned)),
    ]


def _paper(printed: Paper | None) -> Cell:
    if printed is None:
        return number_cell(None, str)
    spread = "" if printed.spread is None else f" ± {words.number(printed.spread)}"
    return Cell(words.number(printed.value) + spread, printed.value, "number")


def _runs(group: Group, metric: str) -> Cell:
    values = group.values(metric)
    many = "" if group.clusters is None else f"in {words.count(len({key[0] for key in values}), group.clusters.field)}"
    return Cell(str(len(values)), len(values), "number", ", ".join(filter(None, (many, group.told_lost))))


def _places(group: Group) -> list[tuple[str, str]]:
    """Engines and devices that the runs of a group had."""
    return sorted({_place(run.record) for run in group.runs.values()})


def _place(record: Mapping[str, Any]) -> tuple[str, str]:
    return str(record["made"].get("engine") or ""), str(record["made"].get("device") or "")


def _costs(groups: Sequence[Group], place: tuple[str, str], name: str) -> dict[Key, float]:
    """What the runs in one place cost, by seed."""
    runs = ((seed, run.record) for group in groups for seed, run in group.runs.items() if _place(run.record) == place)
    costs = collect((seed, cost) for seed, record in runs if (cost := record["cost"].get(name)) is not None)
    return {seed: median(values) for seed, values in costs.items()}


def _paired(costs: Mapping[Key, float], base: Mapping[Key, float]) -> list[float]:
    """Ratios of the seeds that both have."""
    return [value / base[seed] for seed, value in costs.items() if base.get(seed)]


def _cost_cell(values: Collection[float], write: Callable[[Any], str]) -> Cell:
    """Their median: a busy machine spoils a mean."""
    return number_cell(median(values), write) if values else Cell("n/a", kind="number")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _key_cell(value: Any) -> Cell:
    if isinstance(value, int) and not isinstance(value, bool):
        return Cell(str(value), value, "number")
    return word_cell("" if value is None else str(value))
