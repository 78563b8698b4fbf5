"""A finished stage, as the store holds it: what it is, how it was made, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

from racecar_lab.config import CONFIGS, Config, guides, younger
from racecar_lab.running.record import purpose_of

DEAD = "dead: the output is the same for every input"
"""Noted of a finished net."""
ASKED = ("config", "tuned", "command", "purpose")
"""How a result was asked for."""


class Arrays(Protocol):
    """Where the arrays of a run are."""

    def arrays(self, run: Run) -> dict[str, Tensor]: ...


@dataclass(frozen=True, eq=False)
class Run:
    """A finished stage, as the store holds it."""

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
        """How it was made, with what holds for fields that came after the record."""
        experiment = str(self.record.get("experiment"))
        given = how(experiment, self.record["config"])
        return {**given, **{name: value for name, value in younger(_config(experiment)).items() if name not in given}}

    @property
    def metrics(self) -> dict[str, float]:
        """Those that are numbers."""
        return {name: value for name, value in self.record["metrics"].items() if value is not None}

    @property
    def tables(self) -> dict[str, Any]:
        return dict(self.record.get("tables") or {})

    @property
    def finished(self) -> bool:
        return bool(self.record["status"] == "finished")

    @property
    def dead(self) -> bool:
        """Whether the output depends on nothing any more, or a layer sees nothing but zeros, as far as the record says:
        older ones say nothing of the layers."""
        return DEAD in str(self.record.get("note") or "") or bool(self.record.get("dead"))

    @property
    def purpose(self) -> str:
        """What it was made for, of ``PURPOSES``; a record from before they were noted is known by its command."""
        command = str(self.record.get("command") or self.record["made"].get("command"))
        return str(self.record.get("purpose", purpose_of(command)))

    @property
    def everywhere(self) -> list[Run]:
        """This run under every setting that it was asked for: a search may choose what is usual anyway, and then one
        result stands for both."""
        others = [Run({**self.record, **one}, self.store) for one in self.record.get("also") or ()]
        return [self, *others]

    @property
    def row(self) -> dict[str, Any]:
        """All of it that fits into one row of a table. Settings are those that it was trained with, also where a search
        chose them; lists are tuples, so that rows can be grouped by them."""
        tuned = {name: value for name, value in (self.record.get("tuned") or {}).items() if name != "coefficient"}
        config = {**self.config, **tuned}
        return {
            **{name: self.record[name] for name in ("id", "experiment", "variant", "stage", "seed")},
            "coefficient": self.coefficient,
            "status": self.record["status"],
            "purpose": self.purpose,
            **{f"config.{name}": tuple(one) if isinstance(one, list) else one for name, one in config.items()},
            **{f"metrics.{name}": value for name, value in self.metrics.items()},
        }

    def made_for(self, purpose: str) -> Run | None:
        """This run under those settings alone that it was asked for to some purpose; None if there is none."""
        found = [run.record for run in self.everywhere if run.purpose == purpose]
        if not found or not self.record.get("also"):
            return self if found else None
        first, *more = found
        made = {**first["made"], "command": first.get("command", first["made"].get("command"))}
        also = [{name: one[name] for name in ASKED if name in one} for one in more]
        return Run({**first, "made": made, "also": also}, self.store)

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """Small tensors for figures; empty if there are none."""
        return {} if self.store is None else self.store.arrays(self)


def how(experiment: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What of an experiment's configuration says how a run is made."""
    left_out = guides(_config(experiment))
    return {name: value for name, value in config.items() if name not in left_out}


def _config(experiment: str) -> type[Config]:
    """One that nobody entered has the fields of all alone."""
    return CONFIGS.get(experiment, Config)
