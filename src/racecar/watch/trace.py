"""The calls of one forward pass, linked: which call uses which earlier tensor of data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from racecar.rules.operation import Path
from racecar.rules.shape import PARTS
from racecar.rules.torch_functions import forms
from racecar.support.torch_private import version, view_base
from racecar.watch.calls import Call, among, outputs, tensors


class Value(NamedTuple):
    """Where a tensor of data comes from: the output ``slot`` of a call, or of the model's inputs (call −1)."""

    call: int
    slot: int


def tensor_of(value: Value, calls: Sequence[Call | None], inputs: Sequence[Tensor], now: bool = False) -> Tensor | None:
    """The tensor of a value among the calls of a pass, as it was made or as it is ``now``; None where its call is
    hidden, or hides it."""
    call, slot = value
    if call < 0:
        return inputs[slot]
    made = calls[call]
    if made is None:
        return None
    outs = (made.kept,) if isinstance(made.kept, Tensor) and not now else outputs(made)
    return outs[slot] if slot < len(outs) else None


def rooted(calls: Sequence[Call]) -> list[bool]:
    """Which calls may work on data: not those that see only parameters, new tensors and what was made of these.

    Plain comparisons by identity, because this also runs while torch.compile traces.
    """
    flags: list[bool] = []
    rootless: list[Tensor] = []
    for call in calls:
        # The first argument nearly always is data: torch.compile need not trace its way through the others.
        first = call.args[0] if call.args else None
        flag = isinstance(first, Tensor) and not isinstance(first, nn.Parameter)
        if not flag or (rootless and among(first, rootless)):
            flag = _sees_data(call, rootless)
            if not flag:
                rootless += outputs(call)
        flags.append(flag)
    return flags


def _sees_data(call: Call, rootless: Sequence[Tensor]) -> bool:
    for _, tensor in tensors(call.args, call.kwargs):
        if not isinstance(tensor, nn.Parameter) and not among(tensor, rootless):
            return True
    return False


def leading(calls: Sequence[Call]) -> list[bool]:
    """Which calls lead to floating-point numbers: not a question whether a mask leaves anything out, which a model may
    ask only where it is not compiled.

    Plain comparisons again.
    """
    flags: list[bool] = []
    used: list[Tensor] = []
    for call in reversed(calls):
        flag = makes_number(call)
        if not flag:
            for out in outputs(call):
                flag = flag or among(out, used)
        flags.append(flag)
        if flag:
            used += [one for _, one in tensors(call.args, call.kwargs) if not _is_number(one)]
    return flags[::-1]


def makes_number(call: Call) -> bool:
    """Whether a result of a call holds floating-point numbers."""
    if isinstance(call.out, Tensor):
        return _is_number(call.out)
    return any(_is_number(out) for out in outputs(call))


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


_TURNING = frozenset(
    forms("transpose permute movedim moveaxis swapaxes swapdims squeeze unsqueeze flatten select index_select")
)
"""Functions whose arguments say where the batch goes."""

NOT_DATA = frozenset(
    forms("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
    + forms("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
)
"""Functions that take only the form of a tensor, not its values."""

_DATA_FIRST = frozenset(
    forms("expand_as", "view_as", "reshape_as", "type_as", "to", "resize_as")
    + forms("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine")
)
"""Functions whose first tensor alone is data: of others they take the form, or the step of a quantisation."""


_DETACHING = frozenset((*forms("detach"), Tensor.data.__get__))  # type: ignore[attr-defined]


def keeps_grad(call: Call) -> bool:
    """Whether the gradient goes back through a call."""
    return call.grad and call.func not in _DETACHING


@dataclass(eq=False)
class Trace:
    """The calls of one forward pass, linked: which call uses which earlier tensor of data.

    Data is what depends on the model's inputs. Everything else is a constant or a parameter.
    """

    calls: list[Call]
    inputs: list[Tensor]
    versions: list[int]
    input_versions: list[int]
    kept_inputs: list[Tensor]
    """The inputs as they were, where the model changes them in place."""
    keep: frozenset[int] = frozenset()
    """The calls (or inputs, as −1 − i) whose tensors were kept as they were."""
    grad: bool = True
    """Whether the pass as a whole ran with gradient: if not, no call can tell whether it would."""
    values: list[Value] = field(default_factory=list)
    links: dict[int, tuple[tuple[Path, int], ...]] = field(default_factory=dict)
    """call → (place, value) of its data arguments; calls without data are not in it."""
    made: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """call → the values that it made."""
    spills: dict[int, list[tuple[int | None, int]]] = field(default_factory=dict)
    """call → (old, new) values of tensors that it changed through a view of them; old is None for a constant."""
    signature: tuple[Any, ...] = ()
    """Equal for two passes that took the same way through the model."""

    def __post_init__(self) -> None:
        known: dict[int, int] = {}
        views: dict[int, list[tuple[Tensor, int]]] = {}
        self._spilled: dict[int, Tensor] = {}
        self._made_by: dict[int, int] | None = None

        def name(tensor: Tensor, value: Value) -> int:
            known[id(tensor)] = len(self.values)
            if view_base(tensor) is not None:
                views.setdefault(id(view_base(tensor)), []).append((tensor, len(self.values)))
            self.values.append(value)
            return len(self.values) - 1

        def spill(i: int, outs: Sequence[Tensor], tensor: Tensor, old: int | None) -> None:
            new = name(tensor, Value(i, len(outs) + len(self.spills.get(i, ()))))
            self.spills.setdefault(i, []).append((old, new))
            self._spilled[new] = tensor
            signature.append(("spill", old))

        signature: list[Any] = []
        for slot, tensor in enumerate(self.inputs):
            name(tensor, Value(-1, slot))
        for i, call in enumerate(self.calls):
            found = []
            for path, tensor in tensors(call.args, call.kwargs):
                number = known.get(id(tensor))
                if number is None and view_base(tensor) is not None:
                    number = _alias(tensor, known, views)
                if number is not None and (path == (0,) or call.func not in _DATA_FIRST):
                    found.append((path, number))
            if not found or call.func in NOT_DATA:
                continue
            self.links[i] = tuple(found)
            outs = outputs(call)
            in_place = [tensor for tensor in outs if id(tensor) in known]
            into = [tensor for tensor in outs if id(tensor) not in known and view_base(tensor) is not None]
            into = [tensor for tensor in into if any(tensor is one for _, one in tensors(call.args, call.kwargs))]
            self.made[i] = tuple(name(tensor, Value(i, slot)) for slot, tensor in enumerate(outs))
            signature.append((call.func, *found))
            for tensor in in_place:
                for other in self._sharing(tensor, i, known, views):
                    spill(i, outs, other, known[id(other)])
            for tensor in into:  # data is written into a constant, through a view of it
                for other in self._family(tensor, i):
                    spill(i, outs, other, known.get(id(other)))
            if call.func in PARTS and len(found) == 1 and found[0][0] == (0,):  # an index that is data always selects
                signature.append(outs[0].numel() == self.tensor(found[0][1], now=True).numel())
            if call.func is Tensor.__getitem__:
                signature.append(_form(call.args[1]))
            elif call.func in _TURNING:
                signature.append(
                    repr([one for one in (*call.args, *call.kwargs.values()) if not isinstance(one, Tensor)])
                )
        self.signature = tuple(signature)

    def _sharing(
        self, tensor: Tensor, i: int, known: dict[int, int], views: dict[int, list[tuple[Tensor, int]]]
    ) -> list[Tensor]:
        """Tensors that a change in place of ``tensor`` by call ``i`` changes as well, if they are used later on."""
        base = view_base(tensor)
        base = tensor if base is None else base
        family = {id(one): one for one in (base, *(one for one, _ in views.get(id(base), ())))}
        family.pop(id(tensor))
        if not any(number in known for number in family):
            return []
        later = {id(one) for call in self.calls[i + 1 :] for _, one in tensors(call.args, call.kwargs)}
        return [one for number, one in family.items() if number in known and number in later]

    def _family(self, view: Tensor, i: int) -> list[Tensor]:
        """Tensors that share memory with a view of a constant and are used after call ``i``."""
        later = {id(one): one for call in self.calls[i + 1 :] for _, one in tensors(call.args, call.kwargs)}
        base = view_base(view)
        return [one for one in later.values() if one is not view and (one is base or view_base(one) is base)]

    def changed_later(self) -> set[int]:
        """Values whose tensor was changed in place after it was made."""
        then = [self.input_versions[slot] if call < 0 else self.versions[call] for call, slot in self.values]
        return {value for value, one in enumerate(then) if version(self.tensor(value, now=True)) != one}

    def tensor(self, value: int, now: bool = False) -> Tensor:
        """The tensor of a value, as it was when it was made; or as it is ``now``, after changes in place."""
        found = self._spilled.get(value)
        if found is None:
            inputs = self.inputs if now else self.kept_inputs
            found = tensor_of(self.values[value], self.calls, inputs, now)
        assert found is not None
        return found

    @property
    def grads(self) -> tuple[bool, ...]:
        """For each call that uses data whether it ran with gradient."""
        return tuple([self.calls[i].grad for i in self.links])

    def beside_data(self, call: int) -> list[Tensor]:
        """The tensors among the arguments of a call that are not data."""
        data = {path for path, _ in self.links.get(call, ())}
        return [tensor for path, tensor in self._arguments(call) if path not in data]

    def roots(self, made: Sequence[Tensor], known: Collection[int], with_grad: bool = False) -> Iterator[Tensor]:
        """What tensors that are not data were made of, in their order, as far as ``known`` (by id).

        ``with_grad``: only what the gradient reaches from there, not through ``detach`` or ``no_grad``.
        """
        if self._made_by is None:
            self._made_by = {
                id(out): i for i, one in enumerate(self.calls) if i not in self.links for out in outputs(one)
            }
        seen: set[int] = set()
        # No inner function that calls itself: it is a cycle, which holds all activations until garbage is collected.
        waiting = [*made][::-1]
        while waiting:
            tensor = waiting.pop()
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            maker = self._made_by.get(id(tensor))
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


def _alias(tensor: Tensor, known: dict[int, int], views: dict[int, list[tuple[Tensor, int]]]) -> int | None:
    """The value that ``tensor`` is another view of: FSDP, for one, hands tensors on through functions of its own."""
    base = view_base(tensor)
    for other, number in views.get(id(base), ()):
        if (
            other.shape == tensor.shape
            and other.stride() == tensor.stride()
            and other.storage_offset() == tensor.storage_offset()
        ):
            return number
    if base is not None and base.shape == tensor.shape and base.stride() == tensor.stride():
        return known.get(id(base))
    return None


def _form(index: Any) -> tuple[Any, ...]:
    """What kind of index it is, which decides whether it crops or selects."""
    parts = index if isinstance(index, tuple) else (index,)
    return tuple((type(part).__name__, part.step) if isinstance(part, slice) else type(part).__name__ for part in parts)
