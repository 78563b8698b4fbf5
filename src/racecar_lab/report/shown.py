"""Which arrays the figures of a page show: a published folder needs no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from racecar_lab.experiment import Experiment
from racecar_lab.report.write import build
from racecar_lab.running.run import Run


class _Noted(dict[str, Tensor]):
    """The arrays of a run; those that are taken are noted. To ask whether there is one takes nothing."""

    def __init__(self, arrays: Mapping[str, Tensor], noted: dict[str, Tensor]) -> None:
        super().__init__(arrays)
        self.noted = noted

    def __getitem__(self, name: str) -> Tensor:
        self.noted[name] = super().__getitem__(name)
        return self.noted[name]


class _Watched:
    """The arrays of some runs, and which of them were taken."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = {run.id: run for run in runs}
        self.noted: dict[str, dict[str, Tensor]] = {}

    def arrays(self, run: Run) -> dict[str, Tensor]:
        return _Noted(self.runs[run.id].arrays, self.noted.setdefault(run.id, {}))


def shown_arrays(runs: Sequence[Run], experiments: Mapping[str, Experiment]) -> dict[str, dict[str, Tensor]]:
    """By run and name, found by making the page.

    Raises:
        ValueError: a figure cannot be drawn, so that nobody knows what it needs.
    """
    watched = _Watched(runs)
    page = build({"": [Run(run.record, watched) for run in runs]}, experiments, [])
    if page.problems:
        raise ValueError(page.problems[0])
    return {id: arrays for id, arrays in watched.noted.items() if arrays}
