"""One torch call of a forward pass, and the tensors that it uses and makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from racecar.rules.norm import Moments
from racecar.rules.operation import Path

SETITEM = Tensor.__setitem__
"""Looked up once: torch.compile cannot compare what it has to look up itself."""


class Call(NamedTuple):
    """One torch call that made a tensor."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    kept: Any
    """The output as it was then, if it is changed in place later."""
    grad: bool
    """Whether it ran with gradient, not in a ``no_grad`` of the model's own. True if the whole pass has no gradient."""
    moments: Moments | None = None
    """Of the input of a batch norm, where they are at hand."""


def gives_list(args: tuple[Any, ...]) -> bool:
    """Whether a call was given a list, which the model may go on to change (torch.cat(xs), xs.append(…))."""
    for one in args:  # noqa: SIM110
        if isinstance(one, list):
            return True
    return False


def with_own_lists(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments, whatever happens to those lists."""
    return tuple([*one] if isinstance(one, list) else one for one in args)


def among(one: Any, others: Sequence[Any]) -> bool:
    """Whether ``one`` is one of ``others``. A plain loop, which torch.compile traces faster than a generator."""
    for other in others:  # noqa: SIM110
        if one is other:
            return True
    return False


def makes_tensor(out: Any) -> bool:
    """Whether a call's result is or holds a tensor (sizes, dtypes and flags are none)."""
    if isinstance(out, Tensor):
        return True
    return isinstance(out, (tuple, list)) and len(out) > 0 and any(isinstance(one, Tensor) for one in out)


def tensors(args: Any, kwargs: dict[str, Any]) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor among a call's arguments, with its place."""
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
    """A call's arguments with ``None`` in place of the data, so that holding them holds no activation."""
    args, kwargs = call.args, call.kwargs
    for path in at:
        if isinstance(path[0], str):
            kwargs = {**kwargs, path[0]: _hollow(kwargs[path[0]], path[1:])}
        else:
            i = path[0]
            args = (*args[:i], _hollow(args[i], path[1:]), *args[i + 1 :])
    return args, kwargs


def _hollow(value: Any, path: Path) -> Any:
    if not path:
        return None
    copy = list(value)
    copy[int(path[0])] = _hollow(copy[int(path[0])], path[1:])
    return copy
