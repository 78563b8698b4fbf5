"""Nested tensors: sequences of several lengths in one tensor, watched as if each were padded to the longest.

The model itself runs on what it was given. The reverse pass needs tensors with one shape for all samples: a nested one
is padded with 0, and a mask says what is real.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from racecar.errors import Unsupported
from racecar.support.compiling import compiling
from racecar.support.torch_private import version
from racecar.watch.calls import Call
from racecar.watch.modules import ModuleWatch
from racecar.watch.recorder import Watch

_INSTEAD = "or give x.to_padded_tensor(0.0), and mask= with True for what is real"

_PADS = (torch.nested.to_padded_tensor, Tensor.to_padded_tensor)


def among(inputs: Iterable[Tensor]) -> bool:
    """Whether there are nested tensors; refuses those that cannot be padded."""
    found = [x for x in inputs if x.is_nested]
    for x in found:
        if compiling():
            raise Unsupported(f"nested tensors cannot be followed by torch.compile: use it uncompiled, {_INSTEAD}")
        if x.layout is not torch.jagged:
            raise Unsupported(f"a nested tensor must have layout=torch.jagged, not {x.layout}: make it so, {_INSTEAD}")
        if cast(Any, x).lengths() is not None:
            raise Unsupported("a nested tensor with holes between its samples cannot be padded: give x.contiguous()")
    return len(found) > 0


def padded(x: Any, length: int | None = None) -> Tensor:
    """A nested tensor, padded with 0 to ``length``, or to its longest sample; any other as it is.

    By hand: torch (as of 2.13) pads to other lengths what has forgotten its longest sample, pads no integers on a GPU,
    and has no gradient where tokens are not the second dimension.
    """
    if not x.is_nested:
        return x
    tokens, found = _tokens(x), real(x, length).movedim(_tokens(x), 1)
    values = x.values().movedim(tokens - 1, 0)
    at = x.offsets()[:-1, None] + torch.arange(found.shape[1], device=x.device)
    return values[at.clamp(max=len(values) - 1)].masked_fill(~found, 0).movedim(1, tokens)


def real(x: Any, length: int | None = None) -> Tensor:
    """Where a nested tensor, padded, is real: bool, (N, T, 1, …)."""
    lengths = x.offsets().diff()
    mark = torch.arange(longest(x) if length is None else length, device=x.device) < lengths[:, None]
    return mark.reshape(*mark.shape, *(1,) * (x.dim() - 2)).movedim(1, _tokens(x))


def longest(x: Any) -> int:
    """How many tokens the longest sample of a nested tensor has."""
    return int(x.offsets().diff().max())


def _tokens(x: Tensor) -> int:
    """The dimension along which samples differ in length."""
    return next(d for d, size in enumerate(x.shape) if not isinstance(size, int))


def pad(
    watch: Watch, inputs: Sequence[Tensor], versions: Sequence[int], modules: ModuleWatch | None = None
) -> list[Tensor]:
    """Put padded tensors in the place of the nested ones that were watched, in calls and modules; the inputs, padded.

    Args:
        watch, modules: what was seen.
        inputs, versions: of the model, and how often each had been changed in place before.
    """
    padding = _Padding()
    made, then = [*inputs, *(call.out for call in watch.calls)], [*versions, *watch.versions]
    if any(isinstance(x, Tensor) and x.is_nested and version(x) != old for x, old in zip(made, then, strict=True)):
        raise Unsupported("the model changes a nested tensor in place: use operations that are not in place")
    found = [padding.of(x) for x in inputs]
    for i, call in enumerate(watch.calls):
        out = padding.of(call.out)
        kept = out if call.kept is call.out else padding.of(call.kept)
        kwargs = {name: padding.of(one) for name, one in call.kwargs.items()}
        args = padding.of(call.args)
        if call.func in _PADS and args[0].shape == out.shape:  # which it is already
            watch.calls[i] = Call(Tensor.contiguous, args[:1], {}, out, kept, call.grad)
        else:
            watch.calls[i] = Call(call.func, args, kwargs, out, kept, call.grad)
        if isinstance(call.out, Tensor) and call.out.is_nested:
            watch.versions[i] = version(out)
    for span in () if modules is None else modules.spans:
        span.outputs = padding.of(span.outputs)
    return found


class _Padding:
    """Pads nested tensors, each once, and knows how long that makes their samples."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Tensor, Tensor]] = {}
        """By id: the nested tensor, which so keeps its id, and the padded one."""
        self._lengths: list[tuple[Any, int]] = []
        """What stands in a shape for a length → the longest."""

    def of(self, one: Any) -> Any:
        """The same with padded tensors and their lengths, however deep in tuples and lists."""
        if isinstance(one, Tensor):
            return self._tensor(one) if one.is_nested else one
        if isinstance(one, torch.SymInt):
            return self._length(one) or one
        if isinstance(one, (tuple, list)):
            parts = [self.of(part) for part in one]
            if all(a is b for a, b in zip(parts, one, strict=True)):
                return one
            return parts if isinstance(one, list) else tuple(parts)
        return one

    def _length(self, symbol: Any) -> int | None:
        return next((length for one, length in self._lengths if one == symbol), None)

    def _tensor(self, x: Tensor) -> Tensor:
        if id(x) not in self._made:
            symbol = x.shape[_tokens(x)]
            length = self._length(symbol)
            if length is None:
                length = longest(x)
                self._lengths.append((symbol, length))
            self._made[id(x)] = x, padded(x, length)
        return self._made[id(x)][1]
