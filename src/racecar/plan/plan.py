"""The plan of a reverse pass: its steps, from the layers, a mode and the weights; and its table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from racecar.errors import NotReversible
from racecar.plan.coverage import Uncovered
from racecar.plan.entry import Entry
from racecar.plan.graph import Op
from racecar.plan.layer import Layer
from racecar.plan.layers import LayerGraph
from racecar.rules.roles import Role
from racecar.support.table import table
from racecar.watch.names import shown

COLUMNS = ("layer", "kind", "constrained", "from", "note")
MODES = ("auto", "full", "layerwise", "input", "linear")
ALONE = ("layerwise", "linear")
"""Every layer by itself."""


class PlanRow(NamedTuple):
    """One line of a plan's table."""

    name: str
    """Of the layer in the model, or of a parameter that no layer uses."""
    kind: str
    constrained: bool
    source: str
    """ "reverse" or "forward", as of an entry; empty where the reverse pass does not go."""
    note: str
    shape: tuple[int, ...] | None = None
    """Of d_m, one sample, as in the pass that was planned; None of what sees no data."""
    weight: float | Tensor | None = None
    """λ as it was given; None where no λ was asked for."""

    @property
    def happens(self) -> str:
        """ "compared" (its error is in the loss), "passed" (the reverse pass goes through) or "left out"."""
        return "compared" if self.constrained else "passed" if self.source else "left out"

    @property
    def cells(self) -> tuple[str, ...]:
        """Its text under ``COLUMNS``."""
        return shown(self.name), self.kind, "yes" if self.constrained else "no", self.source or "-", self.note


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The plan of a model as a reverse pass will run it; iterable, and printable as a table."""

    layer_graph: LayerGraph
    mode: str
    entries: tuple[Entry, ...]
    weights: tuple[float | Tensor, ...] = ()
    """λ of each layer; empty: not asked for."""
    beside: tuple[Layer, ...] = ()
    """Layers that the one way of modes "full" and "input" passes by, such as another head."""
    preset: str = ""
    """Of ``racecar.presets``, the one that has these settings."""

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
        """The same with a note at layers that have their λ as heads, one flag for each layer."""
        note = "@head, the last on the way to an output"
        marked = [e.noted(note) if e.layer is not None and heads[e.layer.index] else e for e in self.entries]
        return replace(self, entries=tuple(marked)) if any(heads) else self

    def rows(self) -> list[PlanRow]:
        """The lines of the table: one for each entry, then one for each parameter that none uses."""
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


Starts = dict[int, Layer | None]
"""Layer index → the layer above whose d' its step back starts from; None: its own forward output."""


def make_plan(
    layer_graph: LayerGraph,
    mode: str,
    active: Sequence[bool],
    frozen: Sequence[bool] = (),
    weights: Sequence[float | Tensor] = (),
) -> Plan:
    """The plan for the layers that are compared.

    Args:
        active: one flag per layer of the plan, whether its λ is not 0 and it is not left out as frozen.
        frozen: one flag per layer, for the table; empty: none is.
        weights: λ of each layer, for the table.
    """
    active = [flag and not layer.problem for flag, layer in zip(active, layer_graph.layers, strict=True)]
    starts: Starts
    beside: list[Layer] = []
    if mode in ALONE:
        starts = {layer.index: None for layer in layer_graph.layers if active[layer.index]}
    else:
        starts = _stretches(layer_graph, active)
    if mode in ("full", "input"):
        way = _whole_way(layer_graph, mode, active)
        beside = _beside(layer_graph, mode, way, active)
        if mode == "input":
            starts = {}
            active = (
                [flag and layer is way[-1] for flag, layer in zip(active, layer_graph.layers, strict=True)]
                if way
                else active
            )
        for above, layer in zip([None, *way], way, strict=False):
            if not layer.problem:
                starts[layer.index] = None if above is None or above.problem else above
    needed = _needed(layer_graph, starts, active)
    entries = [
        _entry(layer_graph, mode, layer, starts, active, needed, _left_out(layer, frozen))
        for layer in layer_graph.layers
    ]
    if beside:
        note = f"beside the way: it starts at {shown(way[0].name)}"
        entries = [replace(entry, reason=note) if entry.layer in beside else entry for entry in entries]
    entries += [Entry(one.name, one.kind, False, "forward", one.reason) for one in layer_graph.coverage.constants]
    return Plan(layer_graph, mode, tuple(entries), tuple(weights), tuple(beside))


def warn_beside(plan: Plan) -> None:
    """Name the heads that the one way of a plan passes by."""
    if plan.beside:
        start = next(entry for entry in reversed(plan.entries) if entry.passed and entry.layer not in plan.beside)
        others = ", ".join(repr(shown(layer.name)) for layer in plan.beside)
        by_itself = "compared by themselves, and their way does not lead on to the layers below"
        warnings.warn(
            f"mode {plan.mode!r} goes back from one head, {shown(start.name)!r}, which is called last; layers of other "
            f"heads ({others}) are {by_itself if plan.mode == 'full' else 'ignored'}; use mode='auto' or "
            "mode='layerwise', or give the other heads weight 0",
            UserWarning,
            stacklevel=5,
        )


def _stretches(layer_graph: LayerGraph, active: Sequence[bool]) -> Starts:
    """Along every unique stretch from its last active layer down."""
    starts: Starts = {}
    for layer in reversed(layer_graph.layers):
        if layer.above is not None and layer.above.index in starts:
            starts[layer.index] = layer.above
        elif active[layer.index]:
            starts[layer.index] = None
    return starts


def _whole_way(layer_graph: LayerGraph, mode: str, active: Sequence[bool]) -> list[Layer]:
    """From the last active layer to the input; refuses where a join makes the way ambiguous."""
    last = next((layer for layer in reversed(layer_graph.layers) if active[layer.index]), None)
    if last is None:
        return []
    join = _join_before(layer_graph, last)
    if join is not None:
        raise NotReversible(
            f"mode {mode!r} needs one reverse pass from output to input, but {layer_graph.place(join)} joins several "
            f"tensors before layer {shown(last.name)!r}; use mode='auto' or mode='layerwise'"
        )
    way: list[Layer] = []
    layer: Layer | None = last
    while layer is not None:
        way.append(layer)
        layer = layer.below or layer.beyond
    return way


def _beside(layer_graph: LayerGraph, mode: str, way: Sequence[Layer], active: Sequence[bool]) -> list[Layer]:
    """Active layers beside the way that would have something to say of a layer on it; in mode "input" of any input."""
    ops, reached, found = {id(layer.op) for layer in way}, set[int](), set[int]()
    for op in layer_graph.graph.ops:
        if any(value in reached for _, value in op.inputs):
            found.add(id(op))
            reached.update(op.outputs)
        elif id(op) in ops:
            reached.update(op.outputs)
    return [
        layer
        for layer in layer_graph.layers
        if active[layer.index] and id(layer.op) not in ops and (mode == "input" or id(layer.op) in found)
    ]


def _join_before(layer_graph: LayerGraph, layer: Layer) -> Op | None:
    """The first join, in forward order, that a layer depends on."""
    found: Op | None = None
    waiting, seen = [value for _, value in layer.op.inputs], set()
    while waiting:
        value = waiting.pop()
        op = layer_graph.graph.maker.get(value)
        if op is None or id(op) in seen:
            continue
        seen.add(id(op))
        joins = not op.members and (op.role is Role.JOIN or len({v for _, v in op.inputs}) > 1)
        if joins and (found is None or op.ordinal < found.ordinal):
            found = op
        if op.role is not Role.SOURCE:
            waiting += [v for _, v in op.inputs]
    return found


def _needed(layer_graph: LayerGraph, starts: Starts, active: Sequence[bool]) -> set[int]:
    """Layers whose d' some active layer's term depends on."""
    needed = {i for i in starts if active[i]}
    for layer in layer_graph.layers:  # from the input up
        above = starts.get(layer.index)
        if layer.index in needed and above is not None:
            needed.add(above.index)
    return needed


def _left_out(layer: Layer, frozen: Sequence[bool]) -> str:
    """Why a layer that is not compared is left out."""
    if layer.index < len(frozen) and frozen[layer.index]:
        return layer.cut_off or "frozen"
    return "weight 0"


def _entry(
    layer_graph: LayerGraph,
    mode: str,
    layer: Layer,
    starts: Starts,
    active: Sequence[bool],
    needed: set[int],
    left_out: str,
) -> Entry:
    i = layer.index
    if i not in starts:
        reason = layer.problem or ("mode input" if mode == "input" else left_out)
        return Entry(layer.name, layer.kind, False, "forward", reason, layer, alone=mode == "linear")
    upper = starts[i]
    reason = ""
    if not active[i]:
        reason = ("only the input is compared" if mode == "input" else left_out) + ", passed through"
    elif upper is None and mode not in ALONE:
        reason = layer.stop or "the last layer with a weight"
    source = "forward" if upper is None else "reverse"
    alone = mode == "linear"
    back = (*layer_graph.between(layer, layer.out if upper is None else upper.d), *layer.into_d)
    steps = layer.into_h if alone else back
    return Entry(layer.name, layer.kind, active[i], source, reason, layer, upper, steps, True, i in needed, alone)
