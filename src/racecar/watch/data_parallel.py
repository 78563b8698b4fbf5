"""Refuse gradients that a DistributedDataParallel (DDP) should have averaged and did not.

DDP averages the gradients of a backward pass only if its own forward ran before. Where a Racecar is called beside a
wrapper of the same model, ``rr(x)`` beside ``DDP(model)``, each process would train a net of its own. That cannot be
seen in the call: the wrapper may be called later in the same step, and then all is well. So the backward pass is
watched: it is refused if at its end gradients have changed and the wrapper has averaged none.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.parallel import DistributedDataParallel

from racecar.errors import Unsupported
from racecar.support.compiling import compiling
from racecar.support.torch_private import (
    after_backward,
    at_trace_time,
    ddp_averagings,
    ddp_needs_forward,
    ddp_parameters,
    in_ddp_forward,
    in_transform,
    tensors_in,
    version,
)

Wrapper = weakref.ref[DistributedDataParallel]

_PASSED_BY = "the model is wrapped in DistributedDataParallel, but Racecar calls it past that wrapper, so "
_REMEDY = (
    "; wrap the Racecar, ddp = DistributedDataParallel(rr), and call ddp(x). If this is intended, call rr(x) inside "
    "`with ddp.no_sync():`"
)


def check_averaging(model: nn.Module, returned: Any) -> None:
    """Refuse gradients through ``returned``, what a call of the model gave, that a DDP will not average. A compiled
    backward pass cannot be watched, so torch.compile only warns."""
    if _outside_ddp():
        if compiling():
            _warn_compiled(id(model))
        else:
            _refuse_unaveraged(model, returned)


@at_trace_time
def _outside_ddp() -> bool:
    """Whether this is a call with gradients, in one of several processes, that is not inside the forward of a DDP."""
    return (
        torch.is_grad_enabled()
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
        and not in_ddp_forward()
    )


@at_trace_time
def _warn_compiled(model: int) -> bool:
    """Warn if a model that torch.compile traces is wrapped in a DDP: a compiled backward pass cannot be watched.

    Args:
        model: its id, which is all that torch 2.11's compiler hands over.
    """
    for ddp in _waiting_wrappers():
        if ddp.require_backward_grad_sync and any(id(part) == model for part in ddp.module.modules()):
            only = "its gradients are averaged only if the same backward pass goes through a call of the wrapper, too"
            warnings.warn(f"{_PASSED_BY}{only}{_REMEDY}", stacklevel=2)
    return True


def _refuse_unaveraged(model: nn.Module, returned: Any) -> None:
    """Raise ``Unsupported`` at the end of a backward pass through ``returned``, what a call of the model gave, if a
    wrapper of the model did not average its gradients."""
    tensors = [one for one in tensors_in(returned) if one.requires_grad and not in_transform(one)]
    for wrapper in _wrappers_of(model):
        ddp = wrapper()
        if ddp is not None and ddp.require_backward_grad_sync and tensors:
            register_multi_grad_hook(tensors, partial(_backward_begins, wrapper), mode="any")


# Which wrappers there are


@dataclass
class _Search:
    """The wrappers of a model that were last found, and the number of its calls so far."""

    calls: int = 0
    wrappers: list[Wrapper] = field(default_factory=list)


_SEARCHES: weakref.WeakKeyDictionary[nn.Module, _Search] = weakref.WeakKeyDictionary()


def _wrappers_of(model: nn.Module) -> list[Wrapper]:
    """The wrappers that average gradients of a model. They are searched for in its calls 1, 2, 4, 8, …: a search takes
    a tenth of a second."""
    search = _SEARCHES.setdefault(model, _Search())
    search.calls += 1
    if search.calls & (search.calls - 1) == 0:
        weights = {id(one) for one in model.parameters()}
        ours = [ddp for ddp in _waiting_wrappers() if any(id(one) in weights for one in ddp_parameters(ddp))]
        search.wrappers = [weakref.ref(ddp) for ddp in ours]
    return search.wrappers


def _waiting_wrappers() -> list[DistributedDataParallel]:
    """All wrappers of this process that average gradients over several processes after a forward of their own."""
    wrappers = [one for one in gc.get_objects() if DistributedDataParallel in type(one).__mro__]
    return [ddp for ddp in wrappers if ddp_needs_forward(ddp) and distributed.get_world_size(ddp.process_group) > 1]


# One backward pass


def _backward_begins(wrapper: Wrapper, _: Tensor) -> None:
    ddp = wrapper()
    if ddp is not None:
        after_backward(partial(_backward_ends, wrapper, ddp_averagings(ddp), _gradients(ddp)))


def _backward_ends(wrapper: Wrapper, averagings: Any, gradients: Any) -> None:
    """Compare what the wrapper has averaged, and its gradients, with those at the beginning."""
    ddp = wrapper()
    if ddp is None or ddp_averagings(ddp) != averagings or _gradients(ddp) == gradients:
        return
    del ddp
    gc.collect()  # one that nobody holds any more may not be gone yet
    if wrapper() is not None:
        raise Unsupported(f"{_PASSED_BY}the gradients of this backward pass were not averaged{_REMEDY}")


def _gradients(ddp: DistributedDataParallel) -> list[tuple[int, int]]:
    """For each parameter two numbers, one of which changes when something is added to its gradient."""
    return [(id(one.grad), 0 if one.grad is None else version(one.grad)) for one in ddp_parameters(ddp)]
