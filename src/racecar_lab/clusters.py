"""Runs that are not independent: those of one fold share their test pictures, and folds share training pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Clusters:
    """How runs come in clusters, such as the folds of a cross-validation.

    Seeds within a cluster are averaged first, and clusters are what is paired and counted. Where clusters share data,
    their means are not independent either: the variance of their mean is (1/n + overlap) times theirs, not 1/n times.
    For folds the overlap is test over training samples (Nadeau and Bengio 2003: the corrected resampled t-test).
    """

    field: str
    """Of the configuration; its values are the clusters."""
    overlap: float = 0.0

    @property
    def told(self) -> str:
        """The model, as pages state it."""
        shared = f"1/n + {self.overlap:g} for 1/n, because they share training data (Nadeau and Bengio 2003)"
        own = f"a {self.field}, the mean over its seeds, is one; t-tests and intervals have n = {self.field}s"
        return f"{own}, and {shared}" if self.overlap else own

    def of(self, config: Any) -> Any:
        """The cluster of a configuration, or of a record's."""
        return config[self.field] if isinstance(config, Mapping) else getattr(config, self.field)
