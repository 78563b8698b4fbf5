"""Clusters of runs that are not independent: runs of one fold share test samples, and folds share training samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Clusters:
    """A division of runs into clusters, such as the folds of a cross-validation.

    Seeds within a cluster are averaged first, and then clusters are paired and counted. Where clusters share data,
    their means are not independent either: the variance of the mean over n clusters is (1/n + overlap) times the
    variance of a single one, not 1/n times. For folds the overlap is test over training samples (Nadeau and Bengio
    2003: the corrected resampled t-test).
    """

    field: str
    """Name of the configuration field whose values are the clusters."""
    overlap: float = 0.0
    """The amount added to 1/n in the variance of the mean of n clusters, because they share data."""

    @property
    def description(self) -> str:
        """A text for pages that says what counts as one value in tests (a cluster) and how the overlap enters their
        variance."""
        shared = f"1/n + {self.overlap:g} for 1/n, because they share training data (Nadeau and Bengio 2003)"
        counted = f"a {self.field}, the mean over its seeds, is one; t-tests and intervals have n = {self.field}s"
        return f"{counted}, and {shared}" if self.overlap else counted

    def of(self, config: Any) -> Any:
        """The cluster that a configuration belongs to: the value of ``field`` in a Config, or in the mapping that a
        record has."""
        return config[self.field] if isinstance(config, Mapping) else getattr(config, self.field)
