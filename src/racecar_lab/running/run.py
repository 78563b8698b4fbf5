"""A finished stage, as the store holds it: what it is, how it was made, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

DEAD = "dead: the output is the same for every input"
"""Noted of a finished net."""


class Arrays(Protocol):
    """Where the arrays of a run are."""

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
    def coefficient(self) -> float | None:
        value = self.record["coefficient"]
        return None if value is None else float(value)

    @property
    def seed(self) -> int:
        return int(self.record["seed"])

    @property
    def stage(self) -> str:
        return str(self.record["stage"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.record["config"])

    @property
    def metrics(self) -> dict[str, float]:
        """Those that are numbers."""
        return {name: value for name, value in self.record["metrics"].items() if value is not None}

    @property
    def tables(self) -> dict[str, Any]:
        return dict(self.record["tables"])

    @property
    def finished(self) -> bool:
        return bool(self.record["status"] == "finished")

    @property
    def dead(self) -> bool:
        """Whether the output depends on nothing any more, or a layer sees nothing but zeros, as far as was looked."""
        return DEAD in self.record["note"] or bool(self.record["dead"])

    @property
    def purpose(self) -> str:
        """What it was made for, of ``record.PURPOSES``."""
        return str(self.record["purpose"])

    @property
    def row(self) -> dict[str, Any]:
        """All of it that fits into one row of a table. Settings are those that it was trained with, also where a search
        chose them; lists are tuples, so that rows can be grouped by them."""
        tuned = {name: value for name, value in self.record["tuned"].items() if name != "coefficient"}
        config = {**self.config, **tuned}
        return {
            **{name: self.record[name] for name in ("id", "experiment", "variant", "stage", "seed")},
            "coefficient": self.coefficient,
            "status": self.record["status"],
            "purpose": self.purpose,
            **{f"config.{name}": tuple(one) if isinstance(one, list) else one for name, one in config.items()},
            **{f"metrics.{name}": value for name, value in self.metrics.items()},
        }

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """Small tensors for figures; empty if there are none."""
        return {} if self.store is None else self.store.arrays(self)
