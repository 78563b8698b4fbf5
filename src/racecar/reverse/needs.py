"""What the reverse pass through some entries of a plan needs of the forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from racecar.plan.entry import Entry
from racecar.plan.graph import Op
from racecar.plan.layer import Layer
from racecar.plan.step import Action
from racecar.reverse import short_cut
from racecar.reverse.norm_statistics import places
from racecar.rules.roles import Role

_DROPOUTS = ("bernoulli_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "rrelu")
ALPHA_DROPOUTS = ("alpha_dropout", "feature_alpha_dropout")


class Needs:
    """What the reverse pass through some entries needs of the forward pass.

    Args:
        entries: of a route.
        gradient: what the gradient of a term reaches, as in :class:`racecar.Racecar`.
    """

    def __init__(self, entries: Sequence[Entry], gradient: str = "both") -> None:
        self.gradient = gradient
        ops: dict[int, tuple[Op, str]] = {}
        values: dict[int, None] = {}
        shapes: dict[int, None] = {}
        starts, again, wholes = set[int](), set[int](), dict[int, None]()
        for entry in entries:
            layer = entry.layer
            assert layer is not None
            values[entry.d] = None
            if entry.alone:
                if layer.op.module is not None or (gradient == "weights" and layer.stays and layer.own == (layer.op,)):
                    values[layer.op.outputs[0]] = None
            elif entry.upper is None and gradient == "weights" and can_recompute(layer):
                again.add(layer.index)
                values[layer.op.source] = None
                for op in (layer.op, *layer.onward):
                    ops.setdefault(op.ordinal, (op, entry.name))
                    shapes[op.outputs[0]] = None
                    if op.role is Role.NORM:
                        wholes[op.source] = None
                    if is_random(op):
                        values.update(dict.fromkeys((op.source, op.outputs[0])))
            elif entry.upper is None:
                values[layer.out] = None
                starts.add(layer.out)
            for action, op in entry.steps:
                ops.setdefault(op.ordinal, (op, entry.name))
                if action is not Action.REDO:
                    shapes[op.source] = None
                if action is Action.MOVE:
                    shapes[op.outputs[0]] = None
        self.entries = tuple(reversed(entries))
        self.starts = frozenset(starts)
        """Values from which a reverse pass starts as they are."""
        self.own = self.starts - {entry.d for entry in entries}
        """Those of which nobody keeps the whole: a slice of them has memory of its own."""
        self.again = frozenset(again)
        """Layers, by index, whose output is computed again, for a way that starts there."""
        chosen = [entry for entry in entries if not entry.alone and short_cut.applies(entry)]
        short = [entry.layer for entry in chosen if entry.layer is not None]
        self.short = frozenset(layer.index for layer in short)
        """Layers, by index, that a short cut may take back."""
        self.live = self.starts | {layer.d for layer in short}
        self.constant = frozenset(values) if gradient == "weights" else frozenset(values) - self.live
        """Values through which no gradient flows, unless it flows through all."""
        if gradient == "both":
            self.constant = frozenset()
        self.ops = tuple(ops.values())
        self.by_vjp = any(one.by_vjp for op, _ in self.ops for one in (op, *op.members))
        """Whether an operation goes back by a vector-Jacobian product."""
        self.values = tuple(values)
        self.wholes = tuple(wholes)
        """Values that are needed of the whole batch: inputs of norms that are applied again as they were."""
        self.shapes = tuple(dict.fromkeys((*shapes, *values)))
        self.places = places(entries)
        """Where batch norms are applied again."""


def can_recompute(layer: Layer) -> bool:
    """Whether a layer can be computed again: a module taken as one operation cannot, as it may hold a state."""
    return all(op.module is None for op in (layer.op, *layer.onward))


def is_random(op: Op) -> bool:
    """Whether an operation between a layer and its output draws random numbers."""
    return op.kind in (*_DROPOUTS, *ALPHA_DROPOUTS)
