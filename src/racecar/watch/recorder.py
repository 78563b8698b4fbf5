"""Record the torch calls of a forward pass in eager mode; ``watch/compiled`` does so for torch.compile.

A ``TorchFunctionMode`` sees every torch call of a forward pass, whether a module, a functional or a tensor method made
it, with its real arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from racecar.rules.norm import Moments
from racecar.rules.torch_functions import RECURRENT
from racecar.support.torch_private import GET_VIEW_BASE, version
from racecar.watch import recurrent
from racecar.watch.attention import ATTENTION, attention_in_parts
from racecar.watch.batch_norm import BATCH_NORM, watched_batch_norm
from racecar.watch.calls import SETITEM, Call, copy_lists, gives_list, makes_tensor, outputs
from racecar.watch.guards import refuse_reentrant

UNFLATTEN = Tensor.unflatten
"""A variable because torch.compile cannot compare a function that it has to look up on Tensor itself."""

_RESHAPING = frozenset(
    getattr(Tensor, f"{name}_") for name in ["t", "transpose", "swapaxes", "swapdims", "squeeze", "unsqueeze"]
)
"""Methods that change the shape of a tensor in place."""

_RECURRENT = frozenset(RECURRENT)


class Watch(TorchFunctionMode):
    """Records the calls that run while it is entered, and changes nothing about them.

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
                return attention_in_parts(*args, **kwargs)
        if func is UNFLATTEN:  # as in a CompiledWatch
            func = torch.unflatten
        if func in _RESHAPING:
            self._keep_shape(args[0])
        if self.grad and not torch.is_grad_enabled():
            refuse_reentrant()
        if func in _RECURRENT and not kwargs:
            return recurrent.take_apart(self, func, args)
        moments = None
        if func is BATCH_NORM:
            out, moments = watched_batch_norm(types, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if (makes_tensor(out) and not _is_of_wrapper(func, args)) or func is SETITEM:
            self.record(func, args, kwargs, out, moments)
        return out

    def record(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, moments: Moments | None = None
    ) -> None:
        """Remember a call."""
        kept = out.clone() if len(self.calls) in self.keep and isinstance(out, Tensor) else out
        if gives_list(args):
            args = copy_lists(args)
        self.calls.append(Call(func, args, kwargs, out, kept, torch.is_grad_enabled() or not self.grad, moments))
        self.versions.append(version(out if isinstance(out, Tensor) else outputs(self.calls[-1])[0]))

    def _keep_shape(self, tensor: Any) -> None:
        """Keep a view of a tensor with the shape that it has now, before that is changed in place."""
        for i, call in enumerate(self.calls):
            if call.out is tensor and call.kept is tensor:
                self.calls[i] = call._replace(kept=tensor.view_as(tensor))


def _is_of_wrapper(func: Any, args: Any) -> bool:
    """Whether it is a call that wrappers such as FSDP add: it asks for a tensor's base, or views a tensor as itself."""
    return func == GET_VIEW_BASE or (func is Tensor.view_as and args[0] is args[1])
