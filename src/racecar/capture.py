"""Watch one forward pass: which operation made which tensor.

A ``TorchFunctionMode`` sees every torch call of a forward pass, whether a module, a functional or a tensor method made
it, with its real arguments. It stays plain, so that ``torch.compile`` can trace through it.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from racecar.guards import refuse_reentrant
from racecar.rules.registry import Path, find, forms


class Call(NamedTuple):
    """One torch call that made a tensor. ``kept`` is the output as it was then, if it is changed in place later."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    kept: Any


class Value(NamedTuple):
    """Where a tensor of data comes from: the output ``slot`` of a call, or of the model's inputs (call −1)."""

    call: int
    slot: int


# Take attention apart into its projections: the function hands itself over to a mode as a whole, unless it believes
# that there is none. A copy of it with that one question answered "no" runs the same code, bit for bit.
_whole = F.multi_head_attention_forward
_attention = types.FunctionType(
    _whole.__code__, {**_whole.__globals__, "has_torch_function": lambda _: False}, _whole.__name__
)
_attention.__defaults__, _attention.__kwdefaults__ = _whole.__defaults__, _whole.__kwdefaults__


_CHECKPOINT_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop")


# Looked up once: torch.compile cannot compare what it has to look up itself.
_SETITEM, _UNFLATTEN = Tensor.__setitem__, Tensor.unflatten


class Watch(TorchFunctionMode):
    """Records the calls of a forward pass; changes nothing about it.

    Args:
        keep: positions (among the recorded calls) whose output must be cloned, because it is changed in place later.
        keep_funcs: under ``torch.compile``, where positions differ: the functions whose outputs are cloned.
    """

    def __init__(self, keep: frozenset[int] = frozenset(), keep_funcs: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.versions: list[int] = []
        """How often each output had been changed in place when it was made (not known under torch.compile)."""
        self.keep = keep
        self.keep_funcs = keep_funcs
        self.grad = torch.is_grad_enabled()
        self.eager = not torch.compiler.is_compiling()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:
                return _attention(*args, **kwargs)
        if func is checkpoint:  # torch.compile shows it as one call; what the way back needs is kept anyway
            with self:
                return args[0](*args[1:], **{k: v for k, v in kwargs.items() if k not in _CHECKPOINT_OPTIONS})
        if func is _UNFLATTEN:  # a Python method that torch.compile cannot call from here
            func = torch.unflatten
        if self.eager and self.grad and not torch.is_grad_enabled():
            refuse_reentrant()
        out = func(*args, **kwargs)
        if (makes_tensor(out) and not (self.eager and _is_noise(func, args))) or func is _SETITEM:
            kept = out
            if len(self.calls) in self.keep or any(func is one for one in self.keep_funcs):
                kept = out.clone() if isinstance(out, Tensor) else out
            # The model may go on to change a list that it passed (torch.cat(features), features.append(…)).
            args = tuple([*one] if isinstance(one, list) else one for one in args)
            self.calls.append(Call(func, args, kwargs, out, kept))
            if self.eager:
                self.versions.append(version(out if isinstance(out, Tensor) else outputs(self.calls[-1])[0]))
        return out


def _is_noise(func: Any, args: Any) -> bool:
    """What wrappers such as FSDP do beside the model: ask for a tensor's base, view it as itself."""
    return func == _GET_BASE or (func is Tensor.view_as and args[0] is args[1])


_GET_BASE = Tensor._base.__get__  # type: ignore[union-attr]


def version(tensor: Tensor) -> int:
    """How often a tensor has been changed in place."""
    return 0 if tensor.is_inference() else tensor._version


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
    if call.func is _SETITEM:
        return (call.args[0],)
    if isinstance(call.out, Tensor):
        return (call.out,)
    return tuple(one for one in call.out if isinstance(one, Tensor))


def rooted(calls: Sequence[Call]) -> list[bool]:
    """Which calls may work on data: not those that see only parameters, new tensors and what was made of these.

    Plain comparisons by identity, because this also runs while torch.compile traces.
    """
    flags: list[bool] = []
    rootless: list[Tensor] = []
    for call in calls:
        flag = False
        for _, tensor in tensors(call.args, call.kwargs):
            if not isinstance(tensor, nn.Parameter) and not any(tensor is one for one in rootless):
                flag = True
        flags.append(flag)
        if not flag:
            rootless += outputs(call)
    return flags


_TURNING = frozenset(forms("transpose permute movedim moveaxis swapaxes swapdims squeeze unsqueeze flatten select"))
"""Functions whose arguments say where the batch goes."""

NOT_DATA = frozenset(
    forms("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
    + forms("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
)
"""Functions that take only the form of a tensor, not its values."""


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
    values: list[Value] = field(default_factory=list)
    links: dict[int, tuple[tuple[Path, int], ...]] = field(default_factory=dict)
    """call → (place, value) of its data arguments; calls without data are not in it."""
    made: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """call → the values that it made."""
    spills: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """call → (old, new) values of tensors that it changed through a view of them."""
    signature: tuple[Any, ...] = ()
    """Equal for two passes that took the same way through the model."""

    def __post_init__(self) -> None:
        known: dict[int, int] = {}
        views: dict[int, list[tuple[Tensor, int]]] = {}
        self._spilled: dict[int, Tensor] = {}
        self._made_by: dict[int, int] | None = None

        def name(tensor: Tensor, value: Value) -> int:
            known[id(tensor)] = len(self.values)
            if tensor._base is not None:
                views.setdefault(id(tensor._base), []).append((tensor, len(self.values)))
            self.values.append(value)
            return len(self.values) - 1

        for slot, tensor in enumerate(self.inputs):
            name(tensor, Value(-1, slot))
        signature: list[Any] = []
        for i, call in enumerate(self.calls):
            found = []
            for path, tensor in tensors(call.args, call.kwargs):
                number = known.get(id(tensor))
                if number is None and tensor._base is not None:
                    number = _alias(tensor, known, views)
                if number is not None:
                    found.append((path, number))
            if not found or call.func in NOT_DATA:
                continue
            self.links[i] = tuple(found)
            outs = outputs(call)
            in_place = [tensor for tensor in outs if id(tensor) in known]
            self.made[i] = tuple(name(tensor, Value(i, slot)) for slot, tensor in enumerate(outs))
            signature.append((call.func, *found))
            for tensor in in_place:
                for other in self._sharing(tensor, i, known, views):
                    old = known[id(other)]
                    new = name(other, Value(i, len(outs) + len(self.spills.get(i, ()))))
                    self.spills.setdefault(i, []).append((old, new))
                    self._spilled[new] = other
                    signature.append(("spill", old))
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
        base = tensor if tensor._base is None else tensor._base
        family = {id(one): one for one in (base, *(one for one, _ in views.get(id(base), ())))}
        family.pop(id(tensor))
        if not any(number in known for number in family):
            return []
        later = {id(one) for call in self.calls[i + 1 :] for _, one in tensors(call.args, call.kwargs)}
        return [one for number, one in family.items() if number in known and number in later]

    def changed_later(self) -> set[int]:
        """Values whose tensor was changed in place after it was made."""
        return {
            number
            for number, (call, slot) in enumerate(self.values)
            if version(self._made(number)) != (self.input_versions[slot] if call < 0 else self.versions[call])
        }

    def _made(self, value: int) -> Tensor:
        if value in self._spilled:
            return self._spilled[value]
        call, slot = self.values[value]
        return self.inputs[slot] if call < 0 else outputs(self.calls[call])[slot]

    def tensor(self, value: int) -> Tensor:
        """The tensor of a value, as it was when it was made."""
        if value in self._spilled:
            return self._spilled[value]
        call, slot = self.values[value]
        return self.kept_inputs[slot] if call < 0 else kept(self.calls[call], slot)

    def roots(self, call: int, known: Collection[int]) -> Iterator[Tensor]:
        """What the arguments of a call that are not data were made of, in their order, as far as ``known`` (by id)."""
        if self._made_by is None:
            self._made_by = {
                id(out): i for i, one in enumerate(self.calls) if i not in self.links for out in outputs(one)
            }
        data = {path for path, _ in self.links.get(call, ())}
        seen: set[int] = set()

        def walk(at: int, data: set[Path]) -> Iterator[Tensor]:
            for path, tensor in tensors(self.calls[at].args, self.calls[at].kwargs):
                if path in data or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                if id(tensor) in known:
                    yield tensor
                elif id(tensor) in self._made_by:  # type: ignore[operator]
                    yield from walk(self._made_by[id(tensor)], set())  # type: ignore[index]

        return walk(call, data)

    def position(self, value: int) -> int:
        """The call that made a value, or −1 − i for input i."""
        call, slot = self.values[value]
        return -1 - slot if call < 0 else call


def kept(call: Call, slot: int) -> Tensor:
    """Output ``slot`` of a call."""
    if isinstance(call.kept, Tensor):
        return call.kept
    return outputs(call)[slot]


def _alias(tensor: Tensor, known: dict[int, int], views: dict[int, list[tuple[Tensor, int]]]) -> int | None:
    """The value that ``tensor`` is another view of: FSDP, for one, hands tensors on through functions of its own."""
    base = tensor._base
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


@dataclass(eq=False)
class Span:
    """The calls [start, end) that one call of a module made."""

    module: nn.Module
    start: int
    end: int
    outputs: tuple[Tensor, ...]


class ModuleWatch:
    """While planning: which module made which calls. Hooks are global and gone afterwards; the model has none."""

    def __init__(self, watch: Watch, model: nn.Module) -> None:
        self.watch, self.model = watch, model
        self.members = set(model.modules())
        self.ruled = {module for module in self.members if find(type(module)) is not None}
        self.spans: list[Span] = []
        self._open: list[tuple[nn.Module, int]] = []
        self.callers: list[nn.Module | None] = []

    def __enter__(self) -> ModuleWatch:
        self._handles = (
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._fill()

    def caller(self, call: int) -> nn.Module | None:
        """The innermost module whose forward made a call."""
        return self.callers[call] if call < len(self.callers) else None

    def _fill(self) -> None:
        inner = self._open[-1][0] if self._open else None
        self.callers += [inner] * (len(self.watch.calls) - len(self.callers))

    def _enter(self, module: nn.Module, args: Any) -> None:
        if module in self.members:
            refuse_reentrant()
            self._fill()
            self._open.append((module, len(self.watch.calls)))

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        if self._open and self._open[-1][0] is module:
            self._fill()
            _, start = self._open.pop()
            if module not in self.ruled:
                return
            made = tuple(t for _, t in tensors((out,), {}))
            self.spans.append(Span(module, start, len(self.watch.calls), made))
