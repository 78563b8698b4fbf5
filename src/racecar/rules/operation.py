"""One call of the forward pass, as rules receive it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from racecar.rules.context import NO_CONTEXT, RuleContext

Path = tuple[int | str, ...]
"""The place of an argument: ``(1,)`` is the second positional one, ``("bias",)`` a keyword, ``(0, 2)`` element 2 of
the first one."""

FIRST: tuple[Path, ...] = ((0,), ("input",))
"""The places of the first argument: positional or by keyword."""


class Operation:
    """One call that the forward pass made, with its real arguments except the data.

    Attributes:
        func: the function called (the out-of-place version of an in-place one), or the module class for a rule on a
            module.
        args, kwargs: the arguments, with ``None`` in place of the data.
        at: the places of the data among the arguments.
        module: the module that owns the weight, if any.
        name: the layer's name, or the function's.
        trainable: whether one of the arguments is a parameter.
        inplace_at: the position of an argument ``inplace``, which is set to False.
        members: for several calls treated as one operation: these calls.
        context: the mask and the statistics that the reverse pass gives the rule.
    """

    members: Sequence[Operation] = ()

    def __init__(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        at: tuple[Path, ...] = ((0,),),
        name: str = "",
        module: nn.Module | None = None,
        trainable: bool = False,
        inplace_at: int | None = None,
        context: RuleContext = NO_CONTEXT,
    ) -> None:
        self.func, self.args, self.kwargs, self.at = func, args, kwargs, at
        self.name, self.module, self.trainable, self.inplace_at = name, module, trainable, inplace_at
        self.context = context

    def within(self, context: RuleContext) -> Operation:
        """A copy of the operation with another context."""
        rest = self.name, self.module, self.trainable, self.inplace_at
        return Operation(self.func, self.args, self.kwargs, self.at, *rest, context)

    def filled(self, tensors: Mapping[Path, Any]) -> Operation:
        """A copy of the operation with tensors in some places, and the data in the others."""
        args, kwargs = list(self.args), dict(self.kwargs)
        for path, tensor in tensors.items():
            _put(args, kwargs, path, tensor)
        rest = self.name, self.module, self.trainable, self.inplace_at, self.context
        return Operation(self.func, tuple(args), kwargs, self.at, *rest)

    def with_members(self, members: Sequence[Operation]) -> Operation:
        """A copy of the operation with other members."""
        raise TypeError(f"{self.name!r} is one call and has no members")

    @property
    def data_first(self) -> bool:
        """Whether the data is the first argument."""
        return self.at[0] in FIRST

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """The value of an argument that the model gave by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def __call__(self, x: Tensor) -> Any:
        """Apply the operation to other data ``x``, never in place."""
        return self.run([x] * len(self.at))

    def run(self, data: list[Tensor]) -> Any:
        """Apply the operation to one tensor for each place of the data, never in place."""
        args, kwargs = list(self.args), {k: v for k, v in self.kwargs.items() if k != "inplace"}
        for path, x in zip(self.at, data, strict=True):
            _put(args, kwargs, path, x)
        if self.inplace_at is not None and self.inplace_at < len(args):
            args[self.inplace_at] = False
        return self.func(*args, **kwargs)


def _put(args: list[Any], kwargs: dict[str, Any], path: Path, x: Tensor) -> None:
    head, *rest = path
    holder: Any = kwargs if isinstance(head, str) else args
    for step in rest:
        holder[head] = list(holder[head])
        holder, head = holder[head], step
    holder[head] = x


def reduced_dims(op: Operation, rank: int) -> list[int]:
    """The dimensions that a reduction of a tensor with ``rank`` dimensions runs over."""
    dims = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", op.kwargs.get("axis"))
    if dims is None or dims == ():
        return list(range(rank))
    return [d % rank for d in ((dims,) if isinstance(dims, int) else dims)]
