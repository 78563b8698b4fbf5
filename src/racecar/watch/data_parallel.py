"""Gradients that a DistributedDataParallel does not average, because it was passed by: refused where they arrive.

DDP averages the gradients of a backward pass only if its own forward ran before. ``rr(x)`` beside ``DDP(model)`` calls
the model, not the wrapper, and each process would train a net of its own. No call can tell: the wrapper may be called
later in the same step, and then all is well. So the backward pass is watched, and the wrapper is asked at its end.
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
from torch.autograd import Variable
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.parallel import DistributedDataParallel

from racecar.errors import Unsupported
from racecar.support.compiling import at_trace_time, in_transform
from racecar.watch.inputs import input_tensors

_PASSED_BY = "the model is wrapped in DistributedDataParallel, but Racecar calls it past that wrapper, so "
_REMEDY = (
    "; wrap the Racecar, ddp = DistributedDataParallel(rr), and call ddp(x). If this is intended, call rr(x) inside "
    "`with ddp.no_sync():`"
)


@dataclass
class _Looks:
    """Calls of a model that no wrapper saw, and the wrappers that were found around it."""

    calls: int = 0
    wrappers: list[weakref.ref[DistributedDataParallel]] = field(default_factory=list)


_LOOKS: weakref.WeakKeyDictionary[nn.Module, _Looks] = weakref.WeakKeyDictionary()


@at_trace_time
def passed_by() -> bool:
    """Whether a call with gradients, in one of several processes, is not inside the forward of a wrapper."""
    return (
        torch.is_grad_enabled()
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
        and DistributedDataParallel._get_active_ddp_module() is None
    )


def follow(model: nn.Module, returned: Any) -> None:
    """Refuse gradients that a wrapper should have averaged, at the end of a backward pass through what a call returned.

    Wrappers are looked for in calls 1, 2, 4, 8, …: to look takes a tenth of a second.
    """
    looks = _LOOKS.setdefault(model, _Looks())
    looks.calls += 1
    if looks.calls & (looks.calls - 1) == 0:
        weights = {id(one) for one in model.parameters()}
        looks.wrappers = [weakref.ref(w) for w in _wrappers() if any(id(p) in weights for p in w._module_parameters)]
    for wrapper in looks.wrappers:
        ddp = wrapper()
        tensors = [one for one in input_tensors(returned, ()) if one.requires_grad and not in_transform(one)]
        if ddp is not None and ddp.require_backward_grad_sync and tensors:
            register_multi_grad_hook(tensors, partial(_start, wrapper), mode="any")


@at_trace_time
def warn_compiled(model: int) -> bool:
    """Warn while torch.compile traces, as nobody can look into that backward pass.

    Args:
        model: its id, which is all that torch 2.11's compiler hands over.
    """
    for one in _wrappers():
        if one.require_backward_grad_sync and any(id(part) == model for part in one.module.modules()):
            only = "its gradients are averaged only if the same backward pass goes through a call of the wrapper, too"
            warnings.warn(f"{_PASSED_BY}{only}{_REMEDY}", stacklevel=2)
    return True


def _wrappers() -> list[DistributedDataParallel]:
    """All that wait for their own forward to average gradients, over more than one process."""
    found = [one for one in gc.get_objects() if DistributedDataParallel in type(one).__mro__ and "reducer" in vars(one)]
    return [w for w in found if not w._use_python_reducer and distributed.get_world_size(w.process_group) > 1]


def _start(wrapper: weakref.ref[DistributedDataParallel], _: Tensor) -> None:
    """A backward pass begins: to be compared when it ends."""
    ddp = wrapper()
    if ddp is not None:
        end = partial(_end, wrapper, _averaged(ddp), _gradients(ddp))
        Variable._execution_engine.queue_callback(end)


def _end(wrapper: weakref.ref[DistributedDataParallel], averaged: Any, gradients: Any) -> None:
    ddp = wrapper()
    if ddp is None or _averaged(ddp) != averaged or _gradients(ddp) == gradients:
        return
    del ddp
    gc.collect()  # one that nobody holds any more may not be gone yet
    if wrapper() is not None:
        raise Unsupported(f"{_PASSED_BY}the gradients of this backward pass were not averaged{_REMEDY}")


def _averaged(ddp: DistributedDataParallel) -> Any:
    """Changes in every backward pass that is averaged: when each gradient was ready, or a static graph's first flag."""
    return ddp.reducer.get_backward_stats(), getattr(ddp, "_static_graph_delay_allreduce_enqueued", False)


def _gradients(ddp: DistributedDataParallel) -> list[tuple[int, int]]:
    """Change when something is added to a gradient."""
    return [(id(one.grad), 0 if one.grad is None else one.grad._version) for one in ddp._module_parameters]
