"""One reverse pass that uses statistics of the reverse data, and leaves what its batch norms see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from racecar.rules.norm import Known, Place, Seen
from racecar.rules.registry import Operation
from racecar.run.places import Spot
from racecar.run.reverse_statistics import ReverseStatistics


class Reading:
    """One reverse pass that uses statistics of reverse data, and what it saw of them.

    Args:
        statistics: those that norms use in evaluation.
        gather: whether norms use the statistics of what they are given in evaluation, too.
        prefix: of the keys to look at first, for one way of many.
    """

    def __init__(self, statistics: ReverseStatistics, gather: bool = False, prefix: str = "") -> None:
        self.statistics, self.gather, self.prefix = statistics, gather, prefix
        self.seen: dict[str, Seen] = {}

    def step(self, spots: Sequence[Spot], operation: Operation, run: Callable[[], Tensor]) -> Tensor:
        """Run one step with batch norms in it."""
        norms = [operation if spot.member is None else operation.members[spot.member] for spot in spots]
        for spot, norm in zip(spots, norms, strict=True):
            norm.place = Place(partial(self._known, spot.key), self.gather)
        out = run()
        for spot, norm in zip(spots, norms, strict=True):
            if norm.place.seen is not None:
                self.seen[self.prefix + spot.key] = norm.place.seen
            norm.place = None  # another layer may apply the same norm again
        return out

    def _known(self, key: str, channels: int) -> Known | None:
        found = self.statistics.find(self.prefix + key, channels)
        return self.statistics.find(key, channels) if found is None else found
