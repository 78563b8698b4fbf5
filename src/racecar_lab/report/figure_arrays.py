"""Finds the arrays that the figures of a page show, so that a published folder contains no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from racecar_lab.experiment import Experiment
from racecar_lab.report.write import build
from racecar_lab.running.run import Run


class _Arrays(dict[str, Tensor]):
    """The arrays of a run by name. An array that is taken out is also put into ``read``, to know later which were
    needed; asking whether there is one puts nothing there."""

    def __init__(self, arrays: Mapping[str, Tensor], read: dict[str, Tensor]) -> None:
        super().__init__(arrays)
        self.read = read

    def __getitem__(self, name: str) -> Tensor:
        self.read[name] = super().__getitem__(name)
        return self.read[name]


class _Store:
    """A store of the arrays of some runs, which notes in ``read`` which of them were taken out."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = {run.id: run for run in runs}
        self.read: dict[str, dict[str, Tensor]] = {}

    def arrays(self, run: Run) -> dict[str, Tensor]:
        return _Arrays(self.runs[run.id].arrays, self.read.setdefault(run.id, {}))


def figure_arrays(runs: Sequence[Run], experiments: Mapping[str, Experiment]) -> dict[str, dict[str, Tensor]]:
    """The arrays that the figures of some runs show: run id → name → array. They are found by making the page.

    Raises:
        ValueError: a figure cannot be drawn, so that nobody knows what it needs.
    """
    store = _Store(runs)
    page = build({"": [Run(run.record, store) for run in runs]}, experiments, [])
    if page.problems:
        raise ValueError(page.problems[0])
    return {id: arrays for id, arrays in store.read.items() if arrays}
