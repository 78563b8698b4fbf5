"""A run: a finished stage, as the store holds it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

DEAD = "dead: the output is the same for every input"
"""Note in the record of a net whose output is the same for every input."""


class Arrays(Protocol):
    """A store that returns the arrays of a run, which are small tensors for figures."""

    def arrays(self, run: Run) -> dict[str, Tensor]: ...


@dataclass(frozen=True, eq=False)
class Run:
    """A finished stage under one setting; ``record`` has the fields of ``record.FIELDS``."""

    record: dict[str, Any]
    store: Arrays | None = None

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def variant(self) -> str:
        return str(self.record["variant"])

    @property
    def weight(self) -> float | None:
        """λ, the weight of the regulariser; None if the variant has none."""
        value = self.record["weight"]
        return None if value is None else float(value)

    @property
    def seed(self) -> int:
        return int(self.record["seed"])

    @property
    def stage(self) -> str:
        return str(self.record["stage"])

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the user gave; those that a search chose are in ``record["tuned"]``."""
        return dict(self.record["config"])

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the run that are finite numbers, by name."""
        return {name: value for name, value in self.record["metrics"].items() if value is not None}

    @property
    def tables(self) -> dict[str, Any]:
        return dict(self.record["tables"])

    @property
    def finished(self) -> bool:
        """False if the training diverged."""
        return bool(self.record["status"] == "finished")

    @property
    def dead(self) -> bool:
        """True if the output is the same for every input, or the input of a layer is always zero."""
        return DEAD in self.record["note"] or bool(self.record["dead"])

    @property
    def purpose(self) -> str:
        """The purpose of the run, one of ``record.PURPOSES``."""
        return str(self.record["purpose"])

    @property
    def row(self) -> dict[str, Any]:
        """The run as one row of a table. "config.…" are the settings of the training, also where a search chose them;
        lists become tuples, so that rows can be grouped by them."""
        tuned = {name: value for name, value in self.record["tuned"].items() if name != "weight"}
        config = {**self.config, **tuned}
        return {
            **{name: self.record[name] for name in ("id", "experiment", "variant", "stage", "seed")},
            "weight": self.weight,
            "status": self.record["status"],
            "purpose": self.purpose,
            **{f"config.{name}": tuple(value) if isinstance(value, list) else value for name, value in config.items()},
            **{f"metrics.{name}": value for name, value in self.metrics.items()},
        }

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """Small tensors for figures, by name; empty if there are none."""
        return {} if self.store is None else self.store.arrays(self)
