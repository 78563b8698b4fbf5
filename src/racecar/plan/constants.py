"""Where the tensors beside the data of every call come from: weights, buffers, and what a model computes from them.

With them the calls of a planned pass can be made again on other data without a forward pass
(:mod:`racecar.reverse.replay`). No tensor is kept here.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.support.torch_private import own_buffers, own_parameters
from racecar.watch.calls import Call, outputs, tensors
from racecar.watch.modules import ModuleWatch
from racecar.watch.trace import Trace

_RANDOM = ("rand", "normal", "bernoulli", "uniform", "multinomial", "dropout", "poisson", "exponential")
"""How the names of functions begin that draw random numbers."""
_NORMS = {F.batch_norm: "training", F.instance_norm: "use_input_stats"}
"""Norms → the name of their argument, in place 5, that says whether to use the statistics of the input."""


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a constant argument of a call comes from; the subclasses say it."""


@dataclass(frozen=True, eq=False)
class Held(Origin):
    """A parameter or a buffer: read from its module whenever it is needed."""

    module: nn.Module
    name: str


@dataclass(frozen=True, eq=False)
class Computed(Origin):
    """The result ``slot`` of a call that uses no data: computed again."""

    call: int
    slot: int


@dataclass(frozen=True, eq=False)
class Outside(Origin):
    """A tensor that no watched call made, such as a plain attribute of a module: as long as someone else holds it."""

    tensor: weakref.ref[Tensor]


@dataclass(frozen=True, eq=False)
class Like(Origin):
    """A tensor of data of which the call uses the shape and the dtype alone."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Unknown(Origin):
    """A tensor that cannot be found without a forward pass."""

    reason: str


@dataclass(frozen=True, eq=False)
class TrainingFlag(Origin):
    """The flag of a norm that follows its module between training and evaluation."""

    module: nn.Module


class Constants:
    """The constant arguments of every call of a planned pass.

    Args:
        trace: of the pass.
        model: whose parameters and buffers are told apart.
        modules: which module made which calls; None: the flags of norms stay as they were.
    """

    def __init__(self, trace: Trace, model: nn.Module, modules: ModuleWatch | None) -> None:
        self._trace = trace
        self._origins: dict[int, Origin] = {}
        for module in model.modules():
            for name, tensor in (*own_parameters(module).items(), *own_buffers(module).items()):
                self._origins.setdefault(id(tensor), Held(module, name))
        self._data = trace.data_ids()
        self._versions: dict[int, int] = {}
        """id of a constant → how often it had been changed in place when a call returned it last."""
        self.of_call: dict[int, Call] = {}
        """Position of a call → the call with origins in place of constant tensors, and None in place of data."""
        for i, call in enumerate(trace.calls):
            if i not in trace.links:
                self._add_constant(i, call)
        for i in trace.links:
            self.of_call[i] = self._described(trace.calls[i], {path for path, _ in trace.links[i]}, i, modules)
        needed = [origin.call for i in trace.links for origin in _computed(self.of_call[i])]
        while needed:
            i = needed.pop()
            if i not in self.of_call:
                self.of_call[i] = self._described(trace.calls[i], set(), i, None)
                needed += [origin.call for origin in _computed(self.of_call[i])]
        del self._trace, self._origins, self._data, self._versions

    def _add_constant(self, i: int, call: Call) -> None:
        """Note where the results of a call come from that uses no data."""
        arguments = [self._origin(tensor) for _, tensor in tensors(call.args, call.kwargs)]
        unknown = next((origin for origin in arguments if isinstance(origin, Unknown)), None)
        if unknown is None and _name(call.func).startswith(_RANDOM):
            unknown = Unknown("is drawn at random in every forward pass")
        for slot, out in enumerate(outputs(call)):
            known = self._origins.get(id(out))
            changed = slot == 0 and self._versions.get(id(out), self._trace.versions[i]) != self._trace.versions[i]
            self._versions[id(out)] = self._trace.versions[i]
            if isinstance(known, Held) or (known is not None and not changed):
                continue  # a buffer that is updated, or a call that returns its argument
            changed_in_place = Unknown("is changed in place by the model") if known is not None else None
            self._origins[id(out)] = unknown or changed_in_place or Computed(i, slot)

    def _origin(self, tensor: Tensor) -> Origin:
        origin = self._origins.get(id(tensor))
        if id(tensor) in self._data and not isinstance(origin, Held):
            if origin is not None:
                return Unknown("is a constant into which data is written later")
            return Like(tensor.shape, tensor.dtype)
        return Outside(weakref.ref(tensor)) if origin is None else origin

    def _described(self, call: Call, data: set[Any], i: int, modules: ModuleWatch | None) -> Call:
        """A call with origins in place of constant tensors, and None in place of data and of results."""
        args = tuple([self._without_tensors(value, (j,), data) for j, value in enumerate(call.args)])
        kwargs = {name: self._without_tensors(value, (name,), data) for name, value in call.kwargs.items()}
        module = modules.caller(i) if modules is not None and call.func in _NORMS else None
        if module is not None and (args[1] if len(args) > 1 else kwargs.get("running_mean")) is not None:
            name = _NORMS[call.func]
            if len(args) > 5 and args[5] is module.training:
                args = (*args[:5], TrainingFlag(module), *args[6:])
            elif kwargs.get(name) is module.training:
                kwargs[name] = TrainingFlag(module)
        if call.func is F.scaled_dot_product_attention:  # its dropout is passed over, as any other
            args = (*args[:4], *(0.0 for _ in args[4:5]), *args[5:])
            kwargs = {name: 0.0 if name == "dropout_p" else value for name, value in kwargs.items()}
        return call._replace(args=args, kwargs=kwargs, out=None, kept=None, moments=None)

    def _without_tensors(self, value: Any, path: tuple[Any, ...], data: set[Any]) -> Any:
        """An argument, at ``path`` among all, with origins in place of constant tensors and None in place of data."""
        if isinstance(value, Tensor):
            return None if path in data else self._origin(value)
        if type(value) in (tuple, list):
            return type(value)([self._without_tensors(part, (*path, j), data) for j, part in enumerate(value)])
        return value


def _name(func: Any) -> str:
    return getattr(func, "__name__", "").strip("_")


def origins(value: Any) -> Iterator[Origin]:
    """Every origin among the arguments of a described call."""
    if isinstance(value, Origin):
        yield value
    elif type(value) in (tuple, list):
        for part in value:
            yield from origins(part)


def _computed(call: Call) -> list[Computed]:
    every = origins([*call.args, *call.kwargs.values()])
    return [origin for origin in every if isinstance(origin, Computed)]
