"""What the reverse pass through some entries of a plan needs of the forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from racecar.plan.entry import Entry
from racecar.plan.graph import Op
from racecar.plan.layer import Layer
from racecar.plan.step import Action
from racecar.reverse import short_cut
from racecar.reverse.norm_statistics import NormPlaces, norm_places
from racecar.rules.roles import Role

_DROPOUTS = ("bernoulli_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "rrelu")
ALPHA_DROPOUTS = ("alpha_dropout", "feature_alpha_dropout")


@dataclass(frozen=True, eq=False)
class Needs:
    """What the reverse pass through some entries of a plan needs of the forward pass. Values are named by number."""

    entries: tuple[Entry, ...]
    """The entries, last layer first."""
    gradient: str
    """What the gradient of a term reaches, as in :class:`racecar.Racecar`."""
    norms: NormPlaces
    """Where batch norms are applied."""
    ops: tuple[tuple[Op, str], ...]
    """(operation, name of the entry) for every operation that is undone or applied again."""
    values: tuple[int, ...]
    """Values whose tensors are needed."""
    shapes: tuple[int, ...]
    """Values whose shapes are needed."""
    whole: tuple[int, ...]
    """Values that are needed of the whole batch: inputs of norms that are applied with their batch statistics."""
    starts: frozenset[int]
    """Values at which the reverse pass of an entry starts, with the tensor of the forward pass."""
    recomputed: frozenset[int]
    """Indices of layers whose output is computed again, because the reverse pass starts there."""
    short: frozenset[int]
    """Indices of layers for which :mod:`racecar.reverse.short_cut` may be used."""
    filled: frozenset[int]
    """Values that enter the reverse pass: padding in them is filled with 1, as some functions have no slope at 0."""
    constant: frozenset[int]
    """Values that are constants: no gradient flows through them."""
    unkept: frozenset[int]
    """The starts that are no d_m: their slices need memory of their own, as nothing keeps the whole tensor."""
    by_vjp: bool
    """Whether an operation is undone by a vector-Jacobian product."""


class _Collector:
    """Collects what the entries of a plan need, one after the other."""

    def __init__(self) -> None:
        self.ops: dict[int, tuple[Op, str]] = {}
        self.values: dict[int, None] = {}
        self.shapes: dict[int, None] = {}
        self.whole: dict[int, None] = {}
        self.starts: set[int] = set()
        self.recomputed: set[int] = set()

    def add_linear(self, layer: Layer, gradient: str) -> None:
        """Add what mode "linear" needs beside the input h: the operation's output, if it can be used as it is."""
        if layer.op.module is not None or (gradient == "weights" and layer.stays and layer.linear_ops == (layer.op,)):
            self.values[layer.op.outputs[0]] = None

    def add_start(self, layer: Layer, gradient: str) -> None:
        """Add what it needs to start at the layer's output, which is taken from the forward pass or computed again."""
        if gradient != "weights" or not can_recompute(layer):
            self.values[layer.out] = None
            self.starts.add(layer.out)
            return
        self.recomputed.add(layer.index)
        self.values[layer.op.source] = None
        for op in (layer.op, *layer.onward):
            self.ops.setdefault(op.ordinal, (op, layer.name))
            self.shapes[op.outputs[0]] = None
            if op.role is Role.NORM:
                self.whole[op.source] = None
            if is_random(op):
                self.values.update(dict.fromkeys((op.source, op.outputs[0])))

    def add_steps(self, entry: Entry) -> None:
        """Add what the steps of an entry need, from where it starts to d_m."""
        for action, op in entry.steps:
            self.ops.setdefault(op.ordinal, (op, entry.name))
            if action is not Action.REDO:
                self.shapes[op.source] = None
            if action is Action.MOVE:
                self.shapes[op.outputs[0]] = None


def needs_of(entries: Sequence[Entry], gradient: str = "both") -> Needs:
    """The needs of a reverse pass through some entries of a plan, in forward order."""
    collected = _Collector()
    for entry in entries:
        assert entry.layer is not None
        collected.values[entry.d] = None
        if entry.alone:
            collected.add_linear(entry.layer, gradient)
        elif entry.upper is None:
            collected.add_start(entry.layer, gradient)
        collected.add_steps(entry)
    values, starts = tuple(collected.values), frozenset(collected.starts)
    short = [entry.layer for entry in entries if not entry.alone and short_cut.applies(entry) and entry.layer]
    filled = starts | {layer.d for layer in short}
    constants = {"both": frozenset[int](), "reverse": frozenset(values) - filled, "weights": frozenset(values)}
    return Needs(
        entries=tuple(reversed(entries)),
        gradient=gradient,
        norms=norm_places(entries),
        ops=tuple(collected.ops.values()),
        values=values,
        shapes=tuple(dict.fromkeys((*collected.shapes, *values))),
        whole=tuple(collected.whole),
        starts=starts,
        recomputed=frozenset(collected.recomputed),
        short=frozenset(layer.index for layer in short),
        filled=filled,
        constant=constants[gradient],
        unkept=starts - {entry.d for entry in entries},
        by_vjp=any(part.rule.by_vjp for op, _ in collected.ops.values() for part in (op, *op.members)),
    )


def can_recompute(layer: Layer) -> bool:
    """Whether a layer can be computed again: a module taken as one operation cannot, as it may hold a state."""
    return all(op.module is None for op in (layer.op, *layer.onward))


def is_random(op: Op) -> bool:
    """Whether an operation between a layer and its output draws random numbers."""
    return op.kind in (*_DROPOUTS, *ALPHA_DROPOUTS)
