"""Tables of a record of these comparisons: as of `racecar bench`, with the ratio to the step by hand, and growth."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.bench import depth
from benchmarks.bench.kinds import ByHand
from racecar.bench import record_table
from racecar.bench.kinds import DEFAULT
from racecar.bench.record_table import COLUMNS, markdown_table, number

BY_HAND_COLUMNS = (*COLUMNS[:6], ("÷ by hand", number("over_by_hand", 3)), *COLUMNS[6:])
"""The columns of `racecar bench`, and the ratio of our step to the one by hand."""


def compare_with_hand(model: dict[str, Any]) -> dict[str, Any]:
    """A model's part of a record, with the ratio of each of our steps to the one by hand."""
    seconds = {step["step"]: step["seconds"] for step in model.get("steps", ()) if "seconds" in step}
    for step in model.get("steps", ()):
        hand = seconds.get(ByHand(step["fraction"]).label)
        default = (step.get("gradient"), step.get("mode")) == (DEFAULT.reach, DEFAULT.mode)
        if hand and default and step["every"] == 1 and "seconds" in step:
            step["over_by_hand"] = median(step["seconds"]) / median(hand)
    return model


def markdown(record: Mapping[str, Any]) -> str:
    """A record as Markdown."""
    more = []
    if record["settings"].get("grow"):
        more.append(markdown_table(depth.HEAD, "|" + " --- |" * len(depth.HEAD), depth.rows(record["models"])))
    return record_table.markdown(record, BY_HAND_COLUMNS, more)
