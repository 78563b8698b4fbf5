"""Record the torch calls of a forward pass while torch.compile traces it.

The compiler interprets every Python instruction here, once for each call of the model, and with a small model that
takes longer than the rest of its work. So there are few instructions, and few calls of functions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from racecar.rules.torch_functions import RECURRENT
from racecar.watch import recurrent
from racecar.watch.attention import ATTENTION, attention_in_parts
from racecar.watch.calls import SETITEM, Call, among, copy_lists, makes_tensor
from racecar.watch.recorder import UNFLATTEN

_CHECKPOINT_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop")


class CompiledWatch(TorchFunctionMode):
    """Records the calls that are traced while it is entered, and changes nothing about them.

    Args:
        keep: the functions whose outputs are cloned, because one of them is changed in place later.
        recurrent: whether there may be recurrent networks, which are taken apart.
        lists: whether there may be calls that are given a list.
    """

    def __init__(self, keep: tuple[Any, ...], recurrent: bool, lists: bool) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.keep, self.recurrent, self.lists = keep, recurrent, lists
        self.grad = torch.is_grad_enabled()
        """Whether the pass as a whole runs with gradient."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is ATTENTION:
            with self:
                return attention_in_parts(*args, **kwargs)
        if func is checkpoint:  # torch.compile shows it as one call; what the reverse pass needs is kept anyway
            with self:
                return args[0](*args[1:], **{k: v for k, v in kwargs.items() if k not in _CHECKPOINT_OPTIONS})
        if func is UNFLATTEN:  # a Python method that torch.compile cannot call from here
            func = torch.unflatten
        if self.recurrent and among(func, RECURRENT) and not kwargs:
            return recurrent.take_apart(self, func, args)
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) or makes_tensor(out) or func is SETITEM:
            self.record(func, args, kwargs, out)
        return out

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Remember a call."""
        kept = out
        if self.keep and among(func, self.keep):
            kept = out.clone() if isinstance(out, Tensor) else out
        if self.lists:
            args = copy_lists(args)
        self.calls.append(Call(func, args, kwargs, out, kept, torch.is_grad_enabled() or not self.grad))
