"""One torch call of a forward pass, and the tensors that it uses and makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from racecar.rules.norm import Moments
from racecar.rules.operation import Path

SETITEM = Tensor.__setitem__
"""A variable because torch.compile cannot compare a function that it has to look up on Tensor itself."""


class Call(NamedTuple):
    """One torch call that made a tensor."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    kept: Any
    """The output; a copy of it, if it is changed in place later."""
    grad: bool
    """False if the model ran the call under a ``no_grad`` of its own; True for all calls of a pass that is without
    gradient as a whole."""
    moments: Moments | None = None
    """Mean and variance of a batch norm's input, where they are known."""


def gives_list(args: tuple[Any, ...]) -> bool:
    """Whether an argument is a list, which the model may change after the call: torch.cat(xs), then xs.append(…)."""
    for one in args:  # noqa: SIM110
        if isinstance(one, list):
            return True
    return False


def copy_lists(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with copies of their lists."""
    return tuple([*one] if isinstance(one, list) else one for one in args)


def among(one: Any, others: Sequence[Any]) -> bool:
    """Whether an object is one of several, by identity. A plain loop is what torch.compile traces fastest."""
    for other in others:  # noqa: SIM110
        if one is other:
            return True
    return False


def makes_tensor(out: Any) -> bool:
    """Whether the result of a call is a tensor, or a tuple or list that holds one."""
    if isinstance(out, Tensor):
        return True
    return isinstance(out, (tuple, list)) and len(out) > 0 and any(isinstance(one, Tensor) for one in out)


def tensors(args: Any, kwargs: dict[str, Any]) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor among a call's arguments, with its place among them."""
    for i, one in enumerate(args):
        if isinstance(one, Tensor):
            yield (i,), one
        elif isinstance(one, (tuple, list)):
            for path, inner in tensors(one, {}):
                yield (i, *path), inner
    for name, one in kwargs.items():
        if isinstance(one, Tensor):
            yield (name,), one
        elif isinstance(one, (tuple, list)):
            for path, inner in tensors(one, {}):
                yield (name, *path), inner


def outputs(call: Call) -> tuple[Tensor, ...]:
    """The tensors that a call made."""
    if call.func is SETITEM:
        return (call.args[0],)
    if isinstance(call.out, Tensor):
        return (call.out,)
    return tuple(one for one in call.out if isinstance(one, Tensor))


def without_data(call: Call, at: tuple[Path, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with ``None`` in the places ``at`` of its data, so that they keep no activation alive."""
    args, kwargs = call.args, call.kwargs
    for path in at:
        if isinstance(path[0], str):
            kwargs = {**kwargs, path[0]: _with_none(kwargs[path[0]], path[1:])}
        else:
            i = path[0]
            args = (*args[:i], _with_none(args[i], path[1:]), *args[i + 1 :])
    return args, kwargs


def _with_none(value: Any, path: Path) -> Any:
    if not path:
        return None
    copy = list(value)
    copy[int(path[0])] = _with_none(copy[int(path[0])], path[1:])
    return copy
