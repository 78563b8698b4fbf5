"""The batch norms of one reverse pass: where they are applied, and the statistics that each reads and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from racecar.plan.entry import Entry
from racecar.plan.norms import Norm, is_batch_norm
from racecar.plan.step import Action
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.rules.context import BatchStatistics, NormStatistics, RunningStatistics
from racecar.rules.operation import Operation


class NormPlace(NamedTuple):
    """A place where the reverse pass applies a batch norm. A norm that several layers read has several places."""

    key: str
    """The name of its statistics, "layer:i" for operation i among those re-applied before the layer's input."""
    norm: int
    """The ordinal of the norm in the forward pass."""
    member: int | None
    """The index of the norm in a step that takes several calls at once; None: the step is the norm itself."""


NormPlaces = dict[tuple[int, int], tuple[NormPlace, ...]]
"""(layer index, ordinal of a step's operation) → the batch norms that the step applies."""


def norm_places(entries: Sequence[Entry]) -> NormPlaces:
    """The batch norms in the steps of some entries of a plan."""
    by_step: NormPlaces = {}
    for entry in entries:
        layer = entry.layer
        assert layer is not None
        for step in entry.steps:
            if step.action is not Action.REDO:
                continue
            key = f"{layer.name}:{layer.redo.index(step.op)}"
            if is_batch_norm(step.op):
                places = [NormPlace(key, step.op.ordinal, None)]
            else:
                norms = [(i, op) for i, op in enumerate(step.op.members) if is_batch_norm(op)]
                places = [NormPlace(f"{key}.{i}", op.ordinal, i) for i, op in norms]
            if places:
                by_step[layer.index, step.op.ordinal] = tuple(places)
    return by_step


def norms_by_key(places: NormPlaces, norms: Mapping[int, Norm]) -> dict[str, Norm]:
    """Key of a place → the norm there, from the norms of a forward pass by their ordinal."""
    return {place.key: norms[place.norm] for in_step in places.values() for place in in_step}


class PassStatistics:
    """The batch-norm statistics of one reverse pass.

    Args:
        running: the running statistics, which norms read in evaluation.
        in_evaluation: whether norms use and record the statistics of their data in evaluation, too.
        prefix: of the keys of this pass, where ``running`` holds the statistics of several kinds of reverse passes.
            Norms without an entry under the prefixed key read the one without the prefix.
    """

    def __init__(self, running: ReverseStatistics, in_evaluation: bool = False, prefix: str = "") -> None:
        self.running, self.in_evaluation, self.prefix = running, in_evaluation, prefix
        self.recorded: dict[str, BatchStatistics] = {}
        """Key → the statistics of the data that the norm there was applied to."""

    def attach(self, places: Sequence[NormPlace], operation: Operation) -> Operation:
        """The operation, with batch norms that read and record these statistics."""
        members = list(operation.members)
        for place in places:
            statistics = NormStatistics(
                partial(self._find, place.key), partial(self._record, place.key), self.in_evaluation
            )
            if place.member is None:
                return operation.within(operation.context._replace(statistics=statistics))
            norm = members[place.member]
            members[place.member] = norm.within(norm.context._replace(statistics=statistics))
        return operation.with_members(members)

    def _record(self, key: str, statistics: BatchStatistics) -> None:
        self.recorded[self.prefix + key] = statistics

    def _find(self, key: str, channels: int) -> RunningStatistics | None:
        statistics = self.running.find(self.prefix + key, channels)
        return self.running.find(key, channels) if statistics is None else statistics
