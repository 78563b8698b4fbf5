"""One layer: a weighted operation with d_m before it, what lies between them, and where its output goes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from racecar.plan.graph import Op
from racecar.plan.step import Action, Step, undo
from racecar.watch.names import HEAD, MODEL, shown


@dataclass(eq=False)
class Layer:
    """One weighted operation of the model."""

    name: str
    op: Op
    index: int = 0
    problem: str = ""
    """Why the layer cannot be reversed; empty if it can."""
    d: int = -1
    approach: list[Op] = field(default_factory=list)
    """Between d_m and the operation, nearest to the operation first."""
    redo: list[Op] = field(default_factory=list)
    """Re-applied on the way into d_m, in forward order."""
    end: int = -1
    """The operation's output, with a bias that is added by a call of its own."""
    cut: Op | None = None
    """What cuts a causal convolution's output at the end."""
    out: int = -1
    onward: tuple[Op, ...] = ()
    """From the operation to ``out``, in forward order."""
    bottom: Op | None = None
    """What made the value under d_m, if it is no layer; None is the model's input."""
    below: Layer | None = None
    beyond: Layer | None = None
    """The layer below a selection of parts, which ends every way but the whole one."""
    into_d: tuple[Step, ...] = ()
    """The steps from the operation back to d_m."""
    forked: Op | None = None
    """An operation that also uses a tensor on the way to the layer below."""
    above: Layer | None = None
    """The one layer that this one leads to, if the way is unique."""
    own_padding: Op | None = None
    """A convolution's own reflect, replicate or circular padding: part of the operation, so it goes back transposed."""
    shape: tuple[int, ...] = ()
    """Of d_m in the planned pass, without its batch dimension."""
    h_shape: tuple[int, ...] = ()
    """Of h in the planned pass, without its batch dimension."""
    layout: torch.layout = torch.strided
    """Of d_m in the planned pass."""
    stays: bool = True
    """Whether the model leaves the operation's output as it was made."""
    head: bool = False
    """Whether no other layer depends on what it gives: it is the last on the way to an output."""
    stop: str = ""
    """What ends the layer's output, if there is no layer above."""

    def __repr__(self) -> str:
        return f"Layer({shown(self.name)!r}, {self.kind})"

    @property
    def kind(self) -> str:
        return self.op.kind

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, also without the suffixes for later uses and for one of several weights, and what stands for it."""
        owner = self.op.owner
        spellings = (self.name, self.name.partition("#")[0], owner.name if owner else self.name)
        return (*spellings, *(() if all(spellings) else (MODEL,)), *((HEAD,) if self.head else ()))

    @property
    def h(self) -> int:
        """What the weighted operation itself reads, before its own padding: mode "linear" compares this."""
        return self.op.source if self.own_padding is None else self.own_padding.source

    @property
    def own(self) -> tuple[Op, ...]:
        """The operation with what belongs to it, in forward order: its own padding, a causal cut."""
        return tuple(op for op in (self.own_padding, self.op, self.cut) if op is not None)

    @property
    def into_h(self) -> tuple[Step, ...]:
        """The steps from what these make back to h."""
        after = () if self.cut is None else (undo(self.cut),)
        before = () if self.own_padding is None else (Step(Action.FOLD, self.own_padding),)
        return (*after, Step(Action.UNDO, self.op), *before)

    @property
    def cut_off(self) -> str:
        """Why no gradient reaches its weight, frozen or not: "no_grad" or "detached"; empty if one does."""
        owner = self.op.owner
        reasons = [] if owner is None else [one.cut_off for one in (owner, *owner.also)]
        return reasons[0] if all(reasons) and reasons else ""

    @property
    def parameter(self) -> Tensor | None:
        """A parameter of its module, which says where it is and how precise."""
        return next(self.op.owner.module.parameters(), None) if self.op.owner else None

    @property
    def reads_input(self) -> bool:
        """Whether d_m is an input of the model itself."""
        return self.below is None and self.bottom is None and not self.redo
