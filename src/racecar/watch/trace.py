"""The calls of one forward pass, linked, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from racecar.rules.operation import Path
from racecar.rules.torch_functions import forms
from racecar.support.torch_private import version
from racecar.watch.calls import Call, outputs, tensors
from racecar.watch.links import Links, Value

_DETACHING = frozenset((*forms("detach"), Tensor.data.__get__))  # type: ignore[attr-defined]


def keeps_grad(call: Call) -> bool:
    """Whether the gradient goes back through a call."""
    return call.grad and call.func not in _DETACHING


def tensor_of(value: Value, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> Tensor | None:
    """The tensor of a value as it was when it was made. None where torch.compile hides its call, or shows fewer outputs
    of it."""
    call, slot = value
    if call < 0:
        return inputs[slot]
    maker = calls[call]
    if maker is None:
        return None
    outs = (maker.kept,) if isinstance(maker.kept, Tensor) else outputs(maker)
    return outs[slot] if slot < len(outs) else None


@dataclass(eq=False)
class Trace:
    """The calls of one forward pass, and how they are linked."""

    calls: list[Call]
    inputs: list[Tensor]
    versions: list[int]
    """How often the output of each call had been changed in place when it was made."""
    input_versions: list[int]
    kept_inputs: list[Tensor]
    """The inputs as they were, where the model changes them in place."""
    keep: frozenset[int] = frozenset()
    """The calls (or inputs, as −1 − i) whose tensors were kept as they were."""
    grad: bool = True
    """Whether the pass as a whole ran with gradient: if not, no call can tell whether it would."""
    values: list[Value] = field(init=False)
    links: dict[int, tuple[tuple[Path, int], ...]] = field(init=False)
    """call → (place among its arguments, value); calls that use no data are not in it."""
    outputs_of: dict[int, tuple[int, ...]] = field(init=False)
    """call → values of its outputs."""
    spills: dict[int, list[tuple[int | None, int]]] = field(init=False)
    """call → (old, new) values of other tensors whose memory it changed; old is None for a constant."""
    signature: tuple[Any, ...] = field(init=False)
    """Equal for two passes that took the same way through the model."""

    def __post_init__(self) -> None:
        linked = Links(self.calls, self.inputs)
        self.values, self.links, self.outputs_of, self.spills = (
            linked.values,
            linked.uses,
            linked.outputs_of,
            linked.spills,
        )
        self.signature = tuple(linked.signature)
        self._tensors = linked.tensors
        self._makers: dict[int, int] | None = None

    def changed_later(self) -> set[int]:
        """Values whose tensor was changed in place after it was made."""
        then = [self.input_versions[slot] if call < 0 else self.versions[call] for call, slot in self.values]
        return {value for value, tensor in enumerate(self._tensors) if version(tensor) != then[value]}

    def data_ids(self) -> set[int]:
        """The ids of all tensors of data."""
        return {id(tensor) for tensor in self._tensors}

    def latest(self, tensor: Tensor) -> int | None:
        """The number of the latest value that a tensor has; None if it is no data."""
        return next((i for i in range(len(self._tensors) - 1, -1, -1) if self._tensors[i] is tensor), None)

    def tensor(self, value: int) -> Tensor:
        """The tensor of a value as it was when it was made; of one that was changed through another, as it is now."""
        tensor = tensor_of(self.values[value], self.calls, self.kept_inputs)
        return self._tensors[value] if tensor is None else tensor

    @property
    def grads(self) -> tuple[bool, ...]:
        """For each call that uses data whether it ran with gradient."""
        return tuple([self.calls[i].grad for i in self.links])

    def beside_data(self, call: int) -> list[Tensor]:
        """The tensors among the arguments of a call that are not data."""
        data = {path for path, _ in self.links.get(call, ())}
        return [tensor for path, tensor in self._arguments(call) if path not in data]

    def roots(self, constants: Sequence[Tensor], known: Collection[int], with_grad: bool = False) -> Iterator[Tensor]:
        """The tensors of ``known`` (by id) that constants were computed from, in their order.

        ``with_grad``: only what the gradient reaches from there, not through ``detach`` or ``no_grad``.
        """
        if self._makers is None:
            constant = [(i, call) for i, call in enumerate(self.calls) if i not in self.links]
            self._makers = {id(out): i for i, call in constant for out in outputs(call)}
        seen: set[int] = set()
        # No inner function that calls itself: it is a cycle, which holds all activations until garbage is collected.
        waiting = [*constants][::-1]
        while waiting:
            tensor = waiting.pop()
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            maker = self._makers.get(id(tensor))
            if id(tensor) in known:
                yield tensor
            elif maker is not None and (not with_grad or keeps_grad(self.calls[maker])):
                waiting += [one for _, one in self._arguments(maker)][::-1]

    def _arguments(self, call: int) -> Iterator[tuple[Path, Tensor]]:
        return tensors(self.calls[call].args, self.calls[call].kwargs)

    def position(self, value: int) -> int:
        """The call that made a value, or −1 − i for input i."""
        call, slot = self.values[value]
        return -1 - slot if call < 0 else call
