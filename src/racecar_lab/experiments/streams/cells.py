"""Runs of one stream and net, and of one method, find each other here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from racecar_lab.experiments.streams.claims import StreamCell
from racecar_lab.experiments.streams.config import PROTOCOLS
from racecar_lab.report import words
from racecar_lab.report.groups import collect
from racecar_lab.streams import METHODS

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

T = TypeVar("T")


class Where(NamedTuple):
    """What all methods that are compared share."""

    stream: str
    net: str
    norm: str
    optimiser: str
    tasks: int
    passes: int
    images: int
    batch: int
    valid: float
    shipped: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Where:
        usual = PROTOCOLS[config["stream"]]
        given = {name: config[name] or getattr(usual, name) for name in ("tasks", "passes", "images", "batch")}
        same = {name: config[name] for name in ("stream", "net", "norm", "optimiser", "valid", "shipped")}
        return cls(**same, **given)

    @property
    def cell(self) -> StreamCell:
        return StreamCell(self.stream, self.net, self.norm)

    @property
    def judged_by(self) -> str:
        metric = PROTOCOLS[self.stream].metric
        return metric.replace("test", "valid") if self.valid else metric

    @property
    def shortened(self) -> str:
        """How it differs from the published protocol."""
        usual = PROTOCOLS[self.stream]
        more = [
            f"{name} changed from the usual {getattr(usual, name)}"
            for name in ("tasks", "passes", "images", "batch")
            if getattr(self, name) != getattr(usual, name)
        ]
        return "; ".join([usual.shortened, *more])

    def __str__(self) -> str:
        usual, lengths = PROTOCOLS[self.stream], (("tasks", "task", "tasks"), ("passes", "pass", "passes"))
        more = [
            words.count(getattr(self, name), one, many)
            for name, one, many in lengths
            if getattr(self, name) != getattr(usual, name)
        ]
        more += [self.optimiser] if self.optimiser != "adam" else []
        return ", ".join([str(self.cell), *more])


def by_cell(runs: Sequence[Run]) -> Mapping[Where, list[Run]]:
    return in_order(collect((Where.of(run.config), run) for run in runs))


def in_order(found: Mapping[Where, T]) -> dict[Where, T]:
    """In the order of the table of streams, nets without norm first."""
    streams, norms = list(PROTOCOLS), ("none", "layer", "batch")
    order = {one: (streams.index(one.stream), one.net, norms.index(one.norm), one) for one in found}
    return {one: found[one] for one in sorted(found, key=lambda one: order[one])}


def judged_runs(runs: Sequence[Run]) -> list[Run]:
    """Those by which claims are judged: no evidence are quick runs and searches, and settings that no search chose."""
    return [run for run in runs if run.finished and not run.purpose and run.record.get("tuned")]


def by_method(runs: Sequence[Run]) -> Mapping[str, list[Run]]:
    """In the order of the table of methods."""
    found, order = collect((run.variant, run) for run in runs), list(METHODS)
    return {
        name: found[name] for name in sorted(found, key=lambda one: order.index(one) if one in order else len(order))
    }
