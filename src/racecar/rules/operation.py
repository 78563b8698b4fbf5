"""One call of the forward pass, as rules see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from racecar.rules.context import NO_CONTEXT, RuleContext

Path = tuple[int | str, ...]
"""Where an argument stands: ``(1,)`` second positional, ``("bias",)`` keyword, ``(0, 2)`` third of a list."""

FIRST: tuple[Path, ...] = ((0,), ("input",))
"""The first argument, however it is given."""


class Operation:
    """One call that the forward pass made, with its real arguments; the data argument itself is left out.

    Attributes:
        func: the function called (its twin that is not in place), or the module class for a rule on a module.
        args, kwargs: its arguments; ``None`` stands where the data was.
        module: the module that owns the weight, if any.
        name: the layer's name, or the function's.
        trainable: whether a parameter takes part.
        members: of several calls taken as one operation, each.
        context: what the reverse pass knows beside the call.
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
        """The same call in another context."""
        rest = self.name, self.module, self.trainable, self.inplace_at
        return Operation(self.func, self.args, self.kwargs, self.at, *rest, context)

    def with_members(self, members: Sequence[Operation]) -> Operation:
        """The same of other members."""
        raise TypeError(f"{self.name!r} is one call and has no members")

    @property
    def data_first(self) -> bool:
        """Whether the data is the first argument."""
        return self.at[0] in FIRST

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """The argument that a caller may have given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def __call__(self, x: Tensor) -> Any:
        """The operation on other data ``x``, never in place."""
        return self.run([x] * len(self.at))

    def run(self, data: list[Tensor]) -> Any:
        """The operation with one tensor for each place where data stood."""
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
    """The dimensions that a reduction of a tensor of so many runs over."""
    dims = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", op.kwargs.get("axis"))
    if dims is None or dims == ():
        return list(range(rank))
    return [d % rank for d in ((dims,) if isinstance(dims, int) else dims)]
