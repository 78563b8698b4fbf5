"""The plan of a reverse pass: one entry per weighted operation, and a table for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from racecar.plan.coverage import Uncovered
from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.layer_graph import LayerGraph
from racecar.support.table import table
from racecar.watch.names import shown

COLUMNS = ("layer", "kind", "constrained", "from", "note")
"""The columns of a plan's table."""


class PlanRow(NamedTuple):
    """One line of a plan's table."""

    name: str
    """The name of a layer, or of a parameter that no layer uses."""
    kind: str
    constrained: bool
    """Whether the layer's term is in the loss."""
    source: str
    """"reverse" or "forward", as in an entry; empty if the reverse pass does not go through the layer."""
    note: str
    """The reason of an entry, or why no layer uses the parameter."""
    shape: tuple[int, ...] | None = None
    """The shape of one sample of d_m in the planned pass; None for operations without data and parameters."""
    weight: float | Tensor | None = None
    """λ of the layer as the user passed it; None if there is none."""

    @property
    def happens(self) -> str:
        """ "compared" (the error is in the loss), "passed" (the reverse pass goes through the layer) or "left out"."""
        return "compared" if self.constrained else "passed" if self.source else "left out"

    @property
    def cells(self) -> tuple[str, ...]:
        """The text of the row in each of ``COLUMNS``."""
        return shown(self.name), self.kind, "yes" if self.constrained else "no", self.source or "-", self.note


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What the reverse pass does with each weighted operation of a model: a sequence of entries; printed as a table."""

    layer_graph: LayerGraph
    mode: str
    entries: tuple[Entry, ...]
    """The layers in forward order, then weighted operations that use no data."""
    weights: tuple[float | Tensor, ...] = ()
    """λ of each layer as the user passed it; may be empty."""
    bypassed: tuple[Layer, ...] = ()
    """Layers that the path of modes "full" and "input" from output to input does not go through, such as those of
    another head."""
    preset: str = ""
    """The name of the preset in ``racecar.presets`` that has the same settings; empty if none has."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, i: int) -> Entry:
        return self.entries[i]

    @property
    def uncovered(self) -> tuple[Uncovered, ...]:
        """Parameters of two or more dimensions that no entry uses, each with its name and the reason."""
        return self.layer_graph.coverage.uncovered

    @property
    def covered(self) -> float | None:
        """The share of the parameters of two or more dimensions that the reverse pass uses; None if there are none."""
        return self.layer_graph.coverage.share(e.layer.index for e in self.entries if e.needed and e.layer is not None)

    def with_heads(self, heads: Sequence[bool]) -> Plan:
        """A copy with a note at the layers that got their λ by the pattern "@head". ``heads``: one flag per layer."""
        note = "@head, the last on the way to an output"
        marked = [e.noted(note) if e.layer is not None and heads[e.layer.index] else e for e in self.entries]
        return replace(self, entries=tuple(marked)) if any(heads) else self

    def rows(self) -> list[PlanRow]:
        """The rows of the table: one for each entry, then one for each parameter that no layer uses."""
        layers = []
        for e in self.entries:
            shape = None if e.layer is None else e.layer.h_shape if e.alone else e.layer.shape
            weight = self.weights[e.layer.index] if e.layer is not None and self.weights else None
            layers.append(PlanRow(e.name, e.kind, e.constrained, e.source if e.passed else "", e.reason, shape, weight))
        return [*layers, *(PlanRow(name, "parameter", False, "", reason) for name, reason in self.uncovered)]

    @property
    def summary(self) -> str:
        """The table's last line."""
        line = f"{sum(e.constrained for e in self)} of {len(self)} layers constrained, mode {self.mode}"
        line += f", preset {self.preset}" if self.preset else ""
        if (covered := self.covered) is None:
            return line
        percent = 100 if covered == 1 else min(round(100 * covered, 1), 99.9)
        return f"covers {percent:g} % of the parameters of two or more dimensions; {line}"

    def __str__(self) -> str:
        return f"{table(COLUMNS, [row.cells for row in self.rows()])}\n{self.summary}"

    __repr__ = __str__
