"""The short form of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Quick:
    """The short form of an experiment, which ``--quick`` runs: at most a minute on two cores, and no evidence."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of configuration fields that differ from the defaults."""
    shipped: Mapping[str, Any] = field(default_factory=dict)
    """Further values if the data sets are not in the data folder, to use data that come with racecar instead; empty: it
    cannot."""
    seeds: int = 2
    """Number of seeds."""

    @property
    def settings_shipped(self) -> dict[str, Any]:
        """The values with data that come with racecar, where the experiment can use some."""
        return {**self.settings, **self.shipped}
