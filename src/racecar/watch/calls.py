"""Watch one forward pass: which operation made which tensor.

A ``TorchFunctionMode`` sees every torch call of a forward pass, whether a module, a functional or a tensor method made
it, with its real arguments. It stays plain, so that ``torch.compile`` can trace through it.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from racecar.rules.norm import Moments
from racecar.rules.operation import Path
from racecar.rules.registry import Rules, find
from racecar.rules.torch_functions import RECURRENT
from racecar.support.torch_private import GET_VIEW_BASE, tensors_in, version
from racecar.watch import recurrent
from racecar.watch.batch_norm import BATCH_NORM, watched_batch_norm
from racecar.watch.guards import refuse_reentrant


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


# Take attention apart into its projections: the function hands itself over to a mode as a whole, unless it believes
# that there is none. A copy of it with that one question answered "no" runs the same code, bit for bit.
ATTENTION = F.multi_head_attention_forward
apart = types.FunctionType(
    ATTENTION.__code__, {**ATTENTION.__globals__, "has_torch_function": lambda _: False}, ATTENTION.__name__
)
apart.__defaults__, apart.__kwdefaults__ = ATTENTION.__defaults__, ATTENTION.__kwdefaults__


# Looked up once: torch.compile cannot compare what it has to look up itself.
SETITEM, UNFLATTEN = Tensor.__setitem__, Tensor.unflatten

_RESHAPING = frozenset(
    getattr(Tensor, f"{name}_") for name in ["t", "transpose", "swapaxes", "swapdims", "squeeze", "unsqueeze"]
)
"""Methods that change the shape of a tensor in place."""

_RECURRENT = frozenset(RECURRENT)


class Watch(TorchFunctionMode):
    """Records the calls of a forward pass; changes nothing about it. (Under ``torch.compile``: ``CompiledWatch``.)

    Args:
        keep: positions (among the recorded calls) whose output must be cloned, because it is changed in place later.
    """

    def __init__(self, keep: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.versions: list[int] = []
        """How often each output had been changed in place when it was made."""
        self.keep = keep
        self.grad = torch.is_grad_enabled()
        """Whether the pass as a whole runs with gradient."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is ATTENTION:
            with self:
                return apart(*args, **kwargs)
        if func is UNFLATTEN:  # as in a CompiledWatch
            func = torch.unflatten
        if func in _RESHAPING:
            self._keep_form(args[0])
        if self.grad and not torch.is_grad_enabled():
            refuse_reentrant()
        if func in _RECURRENT and not kwargs:
            return recurrent.take_apart(self, func, args)
        moments = None
        if func is BATCH_NORM:
            out, moments = watched_batch_norm(types, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if (makes_tensor(out) and not _is_noise(func, args)) or func is SETITEM:
            self.record(func, args, kwargs, out, moments)
        return out

    def record(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, moments: Moments | None = None
    ) -> None:
        """Remember a call."""
        kept = out.clone() if len(self.calls) in self.keep and isinstance(out, Tensor) else out
        if gives_list(args):
            args = with_own_lists(args)
        self.calls.append(Call(func, args, kwargs, out, kept, torch.is_grad_enabled() or not self.grad, moments))
        self.versions.append(version(out if isinstance(out, Tensor) else outputs(self.calls[-1])[0]))

    def _keep_form(self, tensor: Any) -> None:
        """Before a tensor's shape is changed in place: remember the one that its maker gave it."""
        for i, call in enumerate(self.calls):
            if call.out is tensor and call.kept is tensor:
                self.calls[i] = call._replace(kept=tensor.view_as(tensor))


def gives_list(args: tuple[Any, ...]) -> bool:
    """Whether a call was given a list, which the model may go on to change (torch.cat(xs), xs.append(…))."""
    for one in args:  # noqa: SIM110
        if isinstance(one, list):
            return True
    return False


def with_own_lists(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments, whatever happens to those lists."""
    return tuple([*one] if isinstance(one, list) else one for one in args)


def _is_noise(func: Any, args: Any) -> bool:
    """What wrappers such as FSDP do beside the model: ask for a tensor's base, view it as itself."""
    return func == GET_VIEW_BASE or (func is Tensor.view_as and args[0] is args[1])


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


@dataclass(eq=False)
class Span:
    """The calls [start, end) that one call of a module made."""

    module: nn.Module
    start: int
    end: int
    outputs: tuple[Tensor, ...]


class ModuleWatch:
    """While planning: which module made which calls. Hooks are global and gone afterwards; the model has none."""

    def __init__(self, watch: Watch, model: nn.Module, rules: Rules) -> None:
        self.watch, self.model = watch, model
        self.members = set(model.modules())
        found = {module: find(type(module), rules) for module in self.members}
        self.ruled = {module: rule for module, rule in found.items() if rule is not None}
        self.spans: list[Span] = []
        self.elsewhere: set[nn.Module] = set()
        """Modules that ran in another thread, where no call is seen."""
        self._thread = threading.get_ident()
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
        if module in self.members and threading.get_ident() != self._thread:
            self.elsewhere.add(module)
        elif module in self.members:
            refuse_reentrant()
            self._fill()
            self._open.append((module, len(self.watch.calls)))

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        if self._open and self._open[-1][0] is module and threading.get_ident() == self._thread:
            self._fill()
            _, start = self._open.pop()
            if module not in self.ruled:
                return
            made = tuple(tensors_in(out))
            self.spans.append(Span(module, start, len(self.watch.calls), made))
