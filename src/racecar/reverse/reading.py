"""One reverse pass that uses statistics of the reverse data, and leaves what its batch norms see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from racecar.reverse.norm_statistics import Spot
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.rules.context import BatchStatistics, NormStatistics, RunningStatistics
from racecar.rules.operation import Operation


class Reading:
    """One reverse pass that uses statistics of reverse data, and what it saw of them.

    Args:
        statistics: those that norms use in evaluation.
        gather: whether norms use the statistics of what they are given in evaluation, too.
        prefix: of the keys to look at first, for one way of many.
    """

    def __init__(self, statistics: ReverseStatistics, gather: bool = False, prefix: str = "") -> None:
        self.statistics, self.gather, self.prefix = statistics, gather, prefix
        self.seen: dict[str, BatchStatistics] = {}

    def within(self, spots: Sequence[Spot], operation: Operation) -> Operation:
        """An operation whose batch norms find the statistics of these places, and leave theirs."""
        members = list(operation.members)
        for spot in spots:
            statistics = NormStatistics(partial(self._known, spot.key), partial(self._see, spot.key), self.gather)
            if spot.member is None:
                return operation.within(operation.context._replace(statistics=statistics))
            one = members[spot.member]
            members[spot.member] = one.within(one.context._replace(statistics=statistics))
        return operation.with_members(members)

    def _see(self, key: str, seen: BatchStatistics) -> None:
        self.seen[self.prefix + key] = seen

    def _known(self, key: str, channels: int) -> RunningStatistics | None:
        found = self.statistics.find(self.prefix + key, channels)
        return self.statistics.find(key, channels) if found is None else found
