"""The short form of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Quick:
    """The short form of an experiment, which ``--quick`` runs: at most a minute on two cores, and no evidence."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Field of the configuration → its value in the short form; the other fields keep their defaults."""
    shipped: Mapping[str, Any] = field(default_factory=dict)
    """Field of the configuration → its value if the data sets are not in the data folder, so that data that come with
    racecar are used instead; empty: the experiment cannot use those."""
    seeds: int = 2
    """Number of seeds of the short form."""

    @property
    def settings_shipped(self) -> dict[str, Any]:
        """All values of the short form if it uses the data that come with racecar: ``settings``, with those of
        ``shipped`` over them."""
        return {**self.settings, **self.shipped}
