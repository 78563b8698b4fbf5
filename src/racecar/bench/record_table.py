"""The timings that `racecar bench` wrote into a record, as a table for a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from racecar.bench import kernels

Cell = Callable[[Mapping[str, Any]], str]
"""Function from the results of one kind of step, a dict of the record, to the text of a table cell."""
Column = tuple[str, Cell]
"""Heading of a column, and the function that fills its cells."""


def number(key: str, digits: int, unit: float = 1) -> Cell:
    """Cell function that prints ``step[key] / unit`` with this many decimals; a dash where it is missing or None."""
    return lambda step: "–" if step.get(key) is None else f"{step[key] / unit:.{digits}f}"


def span(key: str, digits: int) -> Cell:
    """Cell function that prints the numbers of ``step[key]`` with this many decimals, joined by dashes."""
    return lambda step: "–" if step.get(key) is None else "–".join(f"{value:.{digits}f}" for value in step[key])


COLUMNS: tuple[Column, ...] = (
    ("ms", number("median_ms", 2)),
    ("quartiles", span("quartiles_ms", 2)),
    ("ratio", number("ratio", 3)),
    ("quartiles", span("ratio_quartiles", 3)),
    ("floor", number("floor", 3)),
    ("÷ floor", number("over_floor", 3)),
    ("GiB", number("memory", 2, 2**30)),
    ("memory ratio", number("memory_ratio", 3)),
)


def head(columns: Sequence[Column] = COLUMNS) -> list[str]:
    return ["net", "step", *(name for name, _ in columns)]


def rows(record: Mapping[str, Any], columns: Sequence[Column] = COLUMNS) -> list[list[str]]:
    """One row for each net and kind of step."""
    empty = [""] * len(columns)
    table = []
    for model in record["models"]:
        name = f"{model['model']}, {' '.join('×'.join(map(str, shape)) for shape in model.get('inputs', []))}"
        if model.get("error"):
            table.append([model["model"], f"failed: {first_sentence(model['error'])}", *empty])
        for i, step in enumerate(model.get("steps", [])):
            if step["error"]:
                cells = [f"{step['step']} failed: {first_sentence(step['error'])}", *empty]
            else:
                cells = [step["step"], *(cell(step) for _, cell in columns)]
            table.append([name if i == 0 else "", *cells])
    return table


def first_sentence(error: str) -> str:
    return error.splitlines()[0].partition(". ")[0]


def foot(record: Mapping[str, Any]) -> str:
    """Line under the table: device, versions and settings of the measurement, and what each column means."""
    settings = record["settings"]
    kind = "compiled" if settings["compile"] else "eager"
    kind += " with short kernels combined" if settings.get("combine") else ""
    graphs = ", whole steps as CUDA graphs" if settings["graphs"] else ""
    count = record["threads"]
    threads = "" if record["cuda"] else f", {count} thread{'s' if count > 1 else ''}"
    return (
        f"{record['device']}{threads}, torch {record['torch']}, {settings['precision']}, {kind}{graphs}. "
        f"Time per step: forward, cross-entropy and backward, without an optimiser; medians and quartiles of "
        f"{settings['rounds']} interleaved rounds. ratio: to the plain step of the same net. floor: the ratio of "
        "products alone. memory: peak of a step, model and gradients included, not captured."
    )


def markdown(record: Mapping[str, Any], columns: Sequence[Column] = COLUMNS, more: Sequence[str] = ()) -> str:
    """The table as Markdown, with its foot, the command, other tables, and the kernels if the record has them."""
    cells = [[cell.replace("|", "/") for cell in row] for row in rows(record, columns)]
    table = markdown_table(head(columns), "|---|---|" + "---:|" * len(columns), cells)
    parts = [table, foot(record), f"`{record['command']}`", *more]
    if profiled := kernels.rows(record):
        numbers = len(kernels.HEAD) - 2
        parts += [markdown_table(kernels.HEAD, "| --- | --- |" + " ---: |" * numbers, profiled), kernels.FOOT]
    return "\n\n".join(parts)


def markdown_table(head: Sequence[str], alignment: str, rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown. alignment: its second line."""
    first, *others = (f"| {' | '.join(line)} |" for line in (head, *rows))
    return "\n".join([first, alignment, *others])
