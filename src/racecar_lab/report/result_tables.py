"""Tables of what runs measured: metrics beside the paper's numbers, and averages of the tables that runs have in their
records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from racecar_lab.experiment import Paper
from racecar_lab.report import words
from racecar_lab.report.groups import Group, Metric, collect, printed_value
from racecar_lab.report.page_table import Cell, Row, Table, mean_cell, number_cell, word_cell
from racecar_lab.report.settings import label, plain
from racecar_lab.report.statistics import estimate

Rows = Sequence[Mapping[str, Any]]


def group_cells(group: Group) -> dict[str, Cell]:
    """The first cells of a table row, which identify a group of runs: stage, setting, variant, λ and tuned settings."""
    return {
        "stage": word_cell(group.stage),
        "setting": word_cell(label(group.setting)),
        "variant": Cell(group.variant, kind="variant"),
        "λ": number_cell(group.weight, words.number),
        "tuned": word_cell(label(group.tuned)),
    }


def results_table(
    caption: str, groups: Sequence[Group], metrics: Sequence[Metric], paper: Sequence[Paper] = ()
) -> Table:
    """Table of the means of some metrics beside the paper's numbers, a row for each metric and group."""
    rows = []
    for stage, metric in metrics:
        for group in [group for group in groups if group.stage == stage]:
            mean, printed = group.mean_of(metric), printed_value(paper, group, metric)
            if mean is None and printed is None and not group.diverged:
                continue
            apart = None if mean is None or printed is None else mean.mean - printed.value
            ends, spread = (None, None) if mean is None else (mean.interval(), mean.sd)
            rows.append({
                "metric": word_cell(metric), **group_cells(group), "paper": _paper(printed), "ours": mean_cell(mean),
                "ours − paper": Cell(words.signed(apart, spread), apart, "number"),
                "95 % interval": Cell(words.interval(ends), None if ends is None else ends[0], "number"),
                "runs": _runs(group, metric), "note": Cell("" if printed is None else printed.note),
            })  # fmt: skip
    return Table.of(caption, rows, keep=("paper", "ours") if paper else ("ours",))


def inner_tables(groups: Sequence[Group]) -> list[Table]:
    """Average the tables that runs have in their records (lists of dicts) over the seeds; one table for each name.

    Rows of different runs are the same row if their words agree, and as many of their whole numbers as are needed to
    tell the rows of one run apart; all other numbers are averaged.
    """
    tables = collect(
        (name, (group, content))
        for group in groups
        for run in group.runs.values()
        for name, content in run.tables.items()
        if isinstance(content, list) and content and all(isinstance(row, dict) for row in content)
    )
    return [_averaged(name, of_runs) for name, of_runs in tables.items()]


def _averaged(name: str, tables: Sequence[tuple[Group, Rows]]) -> Table:
    keys, measured = _roles([rows for _, rows in tables])
    same = collect(((group, _pick(row, keys)), row) for group, rows in tables for row in rows)
    rows: list[Row] = [
        {
            **group_cells(group),
            **{
                field: word_cell("" if value is None else str(value)) for field, value in zip(keys, values, strict=True)
            },
            **{field: mean_cell(estimate(_numbers(alike, field))) for field in measured},
            "runs": number_cell(len(alike), str),
        }
        for (group, values), alike in same.items()
    ]
    return Table.of(name, rows)


def _roles(tables: Sequence[Rows]) -> tuple[list[str], list[str]]:
    """Divide the columns of tables: names of those that identify a row, and names of those with measured numbers, which
    are averaged."""
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


def _numbers(rows: Rows, field: str) -> list[float]:
    """The finite numbers in one column of some rows."""
    values = (row.get(field) for row in rows)
    return [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]


def _paper(printed: Paper | None) -> Cell:
    if printed is None:
        return number_cell(None, str)
    spread = "" if printed.spread is None else f" ± {words.number(printed.spread)}"
    return Cell(words.number(printed.value) + spread, printed.value, "number")


def _runs(group: Group, metric: str) -> Cell:
    """A cell with the number of runs behind a mean; its note says in how many clusters they are, and how many runs
    diverged or died."""
    values = group.values(metric)
    many = "" if group.clusters is None else f"in {words.count(len({key[0] for key in values}), group.clusters.field)}"
    return number_cell(len(values), str, ", ".join(filter(None, (many, group.broken_text))))
