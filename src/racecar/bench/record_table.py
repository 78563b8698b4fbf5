"""A record as a table, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = ("net", "step", "ms", "quartiles", "ratio", "quartiles", "floor", "÷ floor", "÷ by hand", "GiB", "memory ratio")


def rows(record: Mapping[str, Any]) -> list[list[str]]:
    """One row for each net and kind of step."""
    found = []
    for model in record["models"]:
        name = f"{model['model']}, {' '.join('×'.join(map(str, shape)) for shape in model.get('inputs', []))}"
        if model.get("error"):
            found.append([model["model"], f"failed: {_short(model['error'])}", *[""] * (len(HEAD) - 2)])
        for i, step in enumerate(model.get("steps", [])):
            found.append([name if i == 0 else "", *_row(step)])
    return found


def _row(step: Mapping[str, Any]) -> list[str]:
    if step["error"]:
        return [f"{step['step']} failed: {_short(step['error'])}", *[""] * (len(HEAD) - 2)]
    memory = step.get("memory")
    return [
        step["step"],
        _number(step.get("median_ms"), 2),
        _pair(step.get("quartiles_ms"), 2),
        _number(step.get("ratio"), 3),
        _pair(step.get("ratio_quartiles"), 3),
        _number(step.get("floor"), 3),
        _number(step.get("over_floor"), 3),
        _number(step.get("over_by_hand"), 3),
        _number(memory / 2**30 if memory else None, 2),
        _number(step.get("memory_ratio"), 3),
    ]


def _short(error: str) -> str:
    """Its first sentence; the record has all of it."""
    return error.splitlines()[0].partition(". ")[0]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _pair(values: list[float] | None, digits: int) -> str:
    return "–" if values is None else f"{values[0]:.{digits}f}–{values[1]:.{digits}f}"


def foot(record: Mapping[str, Any]) -> str:
    """What the numbers mean, and where they were made."""
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


def markdown(record: Mapping[str, Any]) -> str:
    """The table as Markdown, with its foot."""
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows(record)]
    return "\n".join([*lines, "", foot(record), "", f"`{record['command']}`"])
