"""Which arrays the figures of a page show: a published folder needs no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from racecar_lab.experiment import Experiment
from racecar_lab.report.write import build
from racecar_lab.running.results import Run, Store


class _Noted(dict[str, Tensor]):
    """The arrays of a run; those that are taken are noted. To ask whether there is one takes nothing."""

    def __init__(self, arrays: Mapping[str, Tensor], taken: dict[str, Tensor]) -> None:
        super().__init__(arrays)
        self.taken = taken

    def __getitem__(self, name: str) -> Tensor:
        self.taken[name] = super().__getitem__(name)
        return self.taken[name]


class _Watched(Store):
    """A store that knows which of its arrays were taken."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken: dict[str, dict[str, Tensor]] = {}

    def arrays(self, run: Run) -> dict[str, Tensor]:
        return _Noted(super().arrays(run), self.taken.setdefault(run.id, {}))


def shown_arrays(folder: Path, experiments: Mapping[str, Experiment]) -> dict[str, dict[str, Tensor]]:
    """By run and name, found by making the page.

    Raises:
        ValueError: a record cannot be read or a figure cannot be drawn, so that nobody knows what it needs.
    """
    store = _Watched(folder)
    page = build({"": store.runs()}, experiments, [])
    if page.problems:
        raise ValueError(page.problems[0])
    return {id: taken for id, taken in store.taken.items() if taken}
