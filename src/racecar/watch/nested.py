"""Nested tensors, which hold sequences of different lengths: padded in the recorded calls.

The model itself runs on the nested tensors. The reverse pass needs tensors with one shape for all samples: each nested
tensor is padded with 0 to its longest sequence, and a mask marks the real positions.
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
    """Whether an input is a nested tensor; refuses those that cannot be padded."""
    nested = [x for x in inputs if x.is_nested]
    for x in nested:
        if compiling():
            raise Unsupported(f"nested tensors cannot be followed by torch.compile: use it uncompiled, {_INSTEAD}")
        if x.layout is not torch.jagged:
            raise Unsupported(f"a nested tensor must have layout=torch.jagged, not {x.layout}: make it so, {_INSTEAD}")
        if cast(Any, x).lengths() is not None:
            raise Unsupported("a nested tensor with holes between its samples cannot be padded: give x.contiguous()")
    return len(nested) > 0


def padded(x: Any, length: int | None = None) -> Tensor:
    """A nested tensor padded with 0 to ``length``, or to its longest sample; any other tensor unchanged.

    By hand: torch (as of 2.13) pads to other lengths what has forgotten its longest sample, pads no integers on a GPU,
    and has no gradient where tokens are not the second dimension.
    """
    if not x.is_nested:
        return x
    tokens, mask = _tokens(x), real(x, length).movedim(_tokens(x), 1)
    values = x.values().movedim(tokens - 1, 0)
    at = x.offsets()[:-1, None] + torch.arange(mask.shape[1], device=x.device)
    return values[at.clamp(max=len(values) - 1)].masked_fill(~mask, 0).movedim(1, tokens)


def real(x: Any, length: int | None = None) -> Tensor:
    """A mask for a nested tensor that is padded: True where it is real, bool, (N, T, 1, …)."""
    lengths = x.offsets().diff()
    mark = torch.arange(longest(x) if length is None else length, device=x.device) < lengths[:, None]
    return mark.reshape(*mark.shape, *(1,) * (x.dim() - 2)).movedim(1, _tokens(x))


def longest(x: Any) -> int:
    """The number of tokens of a nested tensor's longest sample."""
    return int(x.offsets().diff().max())


def _tokens(x: Tensor) -> int:
    """The dimension along which samples differ in length."""
    return next(d for d, size in enumerate(x.shape) if not isinstance(size, int))


def pad(
    watch: Watch, inputs: Sequence[Tensor], versions: Sequence[int], modules: ModuleWatch | None = None
) -> list[Tensor]:
    """Replace nested tensors by padded ones in all that was recorded.

    Args:
        watch, modules: the records, which are changed.
        inputs: of the model.
        versions: how often each input had been changed in place before the model ran.

    Returns:
        The inputs, padded.
    """
    padding = _Padding()
    results, then = [*inputs, *(call.out for call in watch.calls)], [*versions, *watch.versions]
    if any(isinstance(x, Tensor) and x.is_nested and version(x) != old for x, old in zip(results, then, strict=True)):
        raise Unsupported("the model changes a nested tensor in place: use operations that are not in place")
    padded_inputs = [padding.of(x) for x in inputs]
    for i, call in enumerate(watch.calls):
        out = padding.of(call.out)
        kept = out if call.kept is call.out else padding.of(call.kept)
        kwargs = {name: padding.of(one) for name, one in call.kwargs.items()}
        args = padding.of(call.args)
        if call.func in _PADS and args[0].shape == out.shape:  # the model pads what is padded now
            watch.calls[i] = Call(Tensor.contiguous, args[:1], {}, out, kept, call.grad)
        else:
            watch.calls[i] = Call(call.func, args, kwargs, out, kept, call.grad)
        if isinstance(call.out, Tensor) and call.out.is_nested:
            watch.versions[i] = version(out)
    for span in () if modules is None else modules.spans:
        span.outputs = padding.of(span.outputs)
    return padded_inputs


class _Padding:
    """Pads nested tensors, each of them once, all of the same lengths to the same shape."""

    def __init__(self) -> None:
        self._padded: dict[int, tuple[Tensor, Tensor]] = {}
        """id of a nested tensor → that tensor, so that nothing else gets its id, and the padded one."""
        self._lengths: list[tuple[Any, int]] = []
        """The symbol that stands in a shape for the lengths, and the longest of them."""

    def of(self, one: Any) -> Any:
        """A value, or tuples and lists of values, with nested tensors padded and symbols replaced by numbers."""
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
        if id(x) not in self._padded:
            symbol = x.shape[_tokens(x)]
            length = self._length(symbol)
            if length is None:
                length = longest(x)
                self._lengths.append((symbol, length))
            self._padded[id(x)] = x, padded(x, length)
        return self._padded[id(x)][1]
