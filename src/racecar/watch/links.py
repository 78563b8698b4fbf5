"""Which call of a forward pass uses which tensor of data.

Data is what depends on the model's inputs; all other tensors are constants. Every tensor of data gets a number, its
value. A tensor that is changed in place gets a new one, and so do the other tensors that share its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from racecar.rules.operation import Path
from racecar.rules.shape import PARTS
from racecar.rules.torch_functions import forms
from racecar.support.torch_private import view_base
from racecar.watch.calls import Call, outputs, tensors

NOT_DATA = frozenset(
    forms("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
    + forms("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
)
"""Functions that use only the shape and dtype of a tensor, not its numbers."""

_DATA_FIRST = frozenset(
    forms("expand_as", "view_as", "reshape_as", "type_as", "to", "resize_as")
    + forms("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine")
)
"""Functions of which only the first tensor is data: of the others they use the shape and dtype, or a quantisation's
step."""

_MOVES_DIMENSIONS = frozenset(
    forms("transpose permute movedim moveaxis swapaxes swapdims squeeze unsqueeze flatten select index_select")
)
"""Functions whose other arguments decide which dimension is the batch."""


class Value(NamedTuple):
    """Where a tensor of data comes from: the output ``slot`` of a call, or of the model's inputs (call −1)."""

    call: int
    slot: int


class Links:
    """The values of a forward pass, and the calls that use and make them.

    Args:
        calls: of the pass.
        inputs: tensors of the model's inputs.
    """

    def __init__(self, calls: Sequence[Call], inputs: Sequence[Tensor]) -> None:
        self.calls = calls
        self.values: list[Value] = []
        self.tensors: list[Tensor] = []
        """The tensor of each value, as it is at the end of the pass."""
        self.uses: dict[int, tuple[tuple[Path, int], ...]] = {}
        """call → (place among its arguments, value); calls that use no data are not in it."""
        self.outputs_of: dict[int, tuple[int, ...]] = {}
        """call → values of its outputs."""
        self.spills: dict[int, list[tuple[int | None, int]]] = {}
        """call → (old, new) values of other tensors whose memory it changed; old is None for a constant."""
        self.signature: list[Any] = []
        """Equal for two passes that took the same way through the model."""
        self._value_of: dict[int, int] = {}
        """id of a tensor → the number of its latest value; a tensor gets a new number when it is changed in place."""
        self._views: dict[int, list[int]] = {}
        """id of a tensor → the values that are views of it."""
        for slot, tensor in enumerate(inputs):
            self._add(tensor, Value(-1, slot))
        for i, call in enumerate(calls):
            uses = tuple(self._data(call))
            if uses and call.func not in NOT_DATA:
                self._link(i, call, uses)

    def _add(self, tensor: Tensor, value: Value) -> int:
        """Give a tensor a new value."""
        number = self._value_of[id(tensor)] = len(self.values)
        base = view_base(tensor)
        if base is not None:
            self._views.setdefault(id(base), []).append(number)
        self.values.append(value)
        self.tensors.append(tensor)
        return number

    def _data(self, call: Call) -> Iterator[tuple[Path, int]]:
        """The arguments of a call that are data."""
        for path, tensor in tensors(call.args, call.kwargs):
            value = self._value_of.get(id(tensor))
            if value is None:
                value = self._same_view(tensor)
            if value is not None and (path == (0,) or call.func not in _DATA_FIRST):
                yield path, value

    def _same_view(self, tensor: Tensor) -> int | None:
        """The value that lies in memory exactly as ``tensor``: FSDP, for one, hands tensors on through functions of its
        own."""
        base = view_base(tensor)
        if base is None:
            return None
        for value in self._views.get(id(base), ()):
            other = self.tensors[value]
            if _layout(other) == _layout(tensor) and other.storage_offset() == tensor.storage_offset():
                return value
        return self._value_of.get(id(base)) if _layout(base) == _layout(tensor) else None

    def _link(self, i: int, call: Call, uses: tuple[tuple[Path, int], ...]) -> None:
        """Add a call that uses data, with the values of its outputs and of what else it changes."""
        outs = outputs(call)
        changed_data = [out for out in outs if id(out) in self._value_of]
        new_views = [out for out in outs if id(out) not in self._value_of and view_base(out) is not None]
        changed_constants = [
            out for out in new_views if any(out is tensor for _, tensor in tensors(call.args, call.kwargs))
        ]
        self.uses[i] = uses
        self.outputs_of[i] = tuple([self._add(out, Value(i, slot)) for slot, out in enumerate(outs)])
        self.signature.append((call.func, *uses))
        for out in changed_data:
            if self._has_relatives(out):
                self._spill(i, len(outs), [one for one in self._sharing(out, i) if id(one) in self._value_of])
        for out in changed_constants:  # data is written into a constant, through a view of it
            self._spill(i, len(outs), self._sharing(out, i))
        self.signature += self._details(call, uses)

    def _has_relatives(self, tensor: Tensor) -> bool:
        """Whether another tensor of data shares memory with a tensor; quick, as it is asked of each change in place."""
        base = view_base(tensor)
        base = tensor if base is None else base
        if base is not tensor and id(base) in self._value_of:
            return True
        return any(self.tensors[value] is not tensor for value in self._views.get(id(base), ()))

    def _sharing(self, tensor: Tensor, i: int) -> list[Tensor]:
        """The other tensors that share memory with a tensor and are used after call ``i``."""
        base = view_base(tensor)
        base = tensor if base is None else base
        later = {id(one): one for call in self.calls[i + 1 :] for _, one in tensors(call.args, call.kwargs)}
        return [one for one in later.values() if one is not tensor and (one is base or view_base(one) is base)]

    def _spill(self, i: int, slots: int, changed: Sequence[Tensor]) -> None:
        """Give new values to tensors that call ``i`` with ``slots`` outputs changed through others."""
        spills = self.spills.setdefault(i, []) if changed else []
        for tensor in changed:
            old = self._value_of.get(id(tensor))
            spills.append((old, self._add(tensor, Value(i, slots + len(spills)))))
            self.signature.append(("spill", old))

    def _details(self, call: Call, uses: tuple[tuple[Path, int], ...]) -> Iterator[Any]:
        """Properties beside function and inputs by which two calls differ for the plan: whether an index selects all
        elements, its kind, and the dimensions that are moved."""
        if call.func in PARTS and len(uses) == 1 and uses[0][0] == (0,):  # an index that is data always selects
            yield outputs(call)[0].numel() == self.tensors[uses[0][1]].numel()
        if call.func is Tensor.__getitem__:
            yield _kind_of_index(call.args[1])
        elif call.func in _MOVES_DIMENSIONS:
            yield repr([one for one in (*call.args, *call.kwargs.values()) if not isinstance(one, Tensor)])


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride()


def _kind_of_index(index: Any) -> tuple[Any, ...]:
    """Type of each part of an index, and the steps of its slices: they decide whether it crops or selects."""
    parts = index if isinstance(index, tuple) else (index,)
    return tuple((type(part).__name__, part.step) if isinstance(part, slice) else type(part).__name__ for part in parts)
