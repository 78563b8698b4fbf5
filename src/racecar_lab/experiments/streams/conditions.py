"""Grouping of the runs of streams: by the conditions that compared methods share, and by method."""

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


class Conditions(NamedTuple):
    """The part of a run's configuration that must be the same for methods to be compared: stream, net, norm, optimiser,
    lengths and data. The method, its setting and the seed may differ."""

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
    def of(cls, config: Mapping[str, Any]) -> Conditions:
        """Read the conditions from a recorded configuration, in which 0 stands for the number of the stream's
        protocol."""
        protocol = PROTOCOLS[config["stream"]]
        numbers = {name: config[name] or getattr(protocol, name) for name in ("tasks", "passes", "images", "batch")}
        others = {name: config[name] for name in ("stream", "net", "norm", "optimiser", "valid", "shipped")}
        return cls(**others, **numbers)

    @property
    def cell(self) -> StreamCell:
        """The stream, net and norm of these conditions, for which claims are made."""
        return StreamCell(self.stream, self.net, self.norm)

    @property
    def judged_by(self) -> str:
        """Name of the metric by which methods are compared: that of the stream's claims, measured on held-out training
        pictures if ``valid`` is not 0."""
        metric = PROTOCOLS[self.stream].metric
        return metric.replace("test", "valid") if self.valid else metric

    @property
    def difference(self) -> str:
        """Differences of these conditions from the published protocol, in words; empty if there are none."""
        protocol = PROTOCOLS[self.stream]
        changes = [
            f"{name} changed from the usual {getattr(protocol, name)}"
            for name in ("tasks", "passes", "images", "batch")
            if getattr(self, name) != getattr(protocol, name)
        ]
        return "; ".join([protocol.difference, *changes])

    def __str__(self) -> str:
        protocol, lengths = PROTOCOLS[self.stream], (("tasks", "task", "tasks"), ("passes", "pass", "passes"))
        changes = [
            words.count(getattr(self, name), singular, plural)
            for name, singular, plural in lengths
            if getattr(self, name) != getattr(protocol, name)
        ]
        changes += [self.optimiser] if self.optimiser != "adam" else []
        return ", ".join([str(self.cell), *changes])


def by_conditions(runs: Sequence[Run]) -> Mapping[Conditions, list[Run]]:
    """Conditions → the runs with them, sorted by stream in the order of ``PROTOCOLS``, then by net, nets without norm
    first."""
    return sort_conditions(collect((Conditions.of(run.config), run) for run in runs))


def sort_conditions(values: Mapping[Conditions, T]) -> dict[Conditions, T]:
    """Sort a mapping by stream in the order of ``PROTOCOLS``, then by net, nets without norm first."""
    streams, norms = list(PROTOCOLS), ("none", "layer", "batch")

    def position(conditions: Conditions) -> tuple[int, str, int, Conditions]:
        return streams.index(conditions.stream), conditions.net, norms.index(conditions.norm), conditions

    return {conditions: values[conditions] for conditions in sorted(values, key=position)}


def judged_runs(runs: Sequence[Run]) -> list[Run]:
    """Keep the runs by which claims are judged: finished ones with settings that a search chose, without quick runs and
    the runs of searches."""
    return [run for run in runs if run.finished and not run.purpose and run.record.get("tuned")]


def by_method(runs: Sequence[Run]) -> Mapping[str, list[Run]]:
    """Name of a method → its runs, in the order of ``METHODS``, unknown methods last."""
    groups, order = collect((run.variant, run) for run in runs), list(METHODS)
    return {
        method: groups[method]
        for method in sorted(groups, key=lambda method: order.index(method) if method in order else len(order))
    }
