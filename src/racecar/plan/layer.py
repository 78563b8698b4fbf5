"""A layer: a weighted operation, the d_m below it, the d_(m+1) above it, and what stands between."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from racecar.plan.graph import Op
from racecar.plan.step import Action, Step
from racecar.rules.roles import Role
from racecar.watch.names import HEAD, MODEL, shown


@dataclass(eq=False)
class Layer:
    """Layer m: one weighted operation of the model. Numbers of values, such as ``d``, are those of the graph."""

    name: str
    """The qualified name of the module that owns the weight; suffixes tell several uses or several weights apart."""
    op: Op
    index: int
    """m − 1: the position among the layers, in forward order."""

    # Towards the input.
    d: int = -1
    """d_m: the value after the last norm or activation before the operation, or else where the layer below ends."""
    approach: list[Op] = field(default_factory=list)
    """The operations between d_m and the operation, nearest to the operation first."""
    redo: list[Op] = field(default_factory=list)
    """The norms and activations before d_m that the reverse pass applies again, and the changes of layout or resolution
    between them, in forward order."""
    own_padding: Op | None = None
    """The reflect, replicate or circular padding of a convolution, which is part of its linear map."""
    below: Layer | None = None
    """The layer from whose output d_m is computed, if only operations that can be reversed stand between."""
    bottom: Op | None = None
    """The operation that the reverse pass cannot go through, if that is why there is no layer below; else None."""
    beyond: Layer | None = None
    """Without a layer below: the next layer below a selection; only modes "full" and "input" go on to that layer."""
    forked: Op | None = None
    """Another operation that uses a value between the layer below and this one; None if there is none."""
    into_d: tuple[Step, ...] = ()
    """The steps that the reverse pass takes after the weighted operation was undone, to arrive at d'_m: each undoes or
    applies again one operation between d_m and the weighted operation."""

    # Towards the output.
    end: int = -1
    """The operation's output, after a bias that a separate call adds and after a causal cut."""
    cut: Op | None = None
    """The slice that cuts the output of a causal convolution."""
    above: Layer | None = None
    """The layer whose ``below`` is this one, if the path between them has no fork."""
    out: int = -1
    """d_(m+1) of the forward pass, from which the reverse pass of this layer can start."""
    onward: tuple[Op, ...] = ()
    """The operations between the weighted operation and ``out``, in forward order."""
    stop: str = ""
    """Why there is no layer above, in words: a join, a fork, the end of the model."""
    head: bool = False
    """Whether no other layer depends on this one, as the last layer before an output."""

    # Of the planned pass.
    shape: tuple[int, ...] = ()
    """The shape of d_m without its batch dimension."""
    h_shape: tuple[int, ...] = ()
    """The shape of h without its batch dimension."""
    layout: torch.layout = torch.strided
    """The layout of d_m."""
    stays: bool = True
    """Whether the model does not change the operation's output in place."""

    def __repr__(self) -> str:
        return f"Layer({shown(self.name)!r}, {self.kind})"

    @property
    def kind(self) -> str:
        """The kind of the operation, as in plan tables."""
        return self.op.kind

    @property
    def problem(self) -> str:
        """Why the layer cannot be reversed; empty if it can."""
        if self.op.role is not Role.SKIPPED:
            return ""
        return f"no rule for {self.kind}" + (" of several tensors" if len(self.op.inputs) > 1 else "")

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a pattern can match: with and without suffixes, and @model or @head where they apply."""
        owner = self.op.owner
        spellings = (self.name, self.name.partition("#")[0], owner.name if owner else self.name)
        return (*spellings, *(() if all(spellings) else (MODEL,)), *((HEAD,) if self.head else ()))

    @property
    def h(self) -> int:
        """The input of the weighted operation before its own padding: the value that mode "linear" compares."""
        return self.op.source if self.own_padding is None else self.own_padding.source

    @property
    def linear_ops(self) -> tuple[Op, ...]:
        """The operations that are the layer's linear map, in forward order: padding, weighted operation, causal cut."""
        return tuple(op for op in (self.own_padding, self.op, self.cut) if op is not None)

    @property
    def into_h(self) -> tuple[Step, ...]:
        """The steps that undo the operations in ``linear_ops``, back to h."""
        return tuple(Step(Action.UNDO, op) for op in reversed(self.linear_ops))

    @property
    def cut_off(self) -> str:
        """Why no gradient reaches the weight: "no_grad" or "detached"; empty if one does."""
        owner = self.op.owner
        reasons = [] if owner is None else [part.cut_off for part in (owner, *owner.also)]
        return reasons[0] if all(reasons) and reasons else ""

    @property
    def parameter(self) -> Tensor | None:
        """A parameter of the layer's module, from which device and dtype are read."""
        return next(self.op.owner.module.parameters(), None) if self.op.owner else None

    @property
    def reads_input(self) -> bool:
        """Whether d_m is an input of the model."""
        return self.below is None and self.bottom is None and not self.redo
