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
    """Context manager that records every torch function called inside it while torch.compile traces a forward pass.

    The model computes the same as without it. Attention, checkpoints and recurrent networks are recorded as the calls
    that they consist of.

    Args:
        keep: functions whose recorded outputs are clones, because the model changes one of them in place later.
        recurrent: whether the model may contain recurrent networks.
        lists: whether a function may be called with a list, which is copied because the model may change it later.
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
        """Append a call to ``calls``; its output is cloned if ``keep`` has the function."""
        kept = out
        if self.keep and among(func, self.keep):
            kept = out.clone() if isinstance(out, Tensor) else out
        if self.lists:
            args = copy_lists(args)
        self.calls.append(Call(func, args, kwargs, out, kept, torch.is_grad_enabled() or not self.grad))
