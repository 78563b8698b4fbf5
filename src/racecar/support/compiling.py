"""Which way of running torch the code is in: eager, compiled, inside torch.func, or recorded as a CUDA graph.

Everything that asks, asks here, so that a new torch touches this file alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

F = TypeVar("F", bound=Callable[..., Any])

compiling = torch.compiler.is_compiling
"""Whether torch.compile traces this code. Torch's function itself: the compiler knows it, and needs no guard for it."""

in_transform = is_functorch_wrapped_tensor
"""Whether a tensor is a wrapper of torch.func (vmap, grad …), which dies with the transform."""


def among_modes() -> bool:
    """Whether a mode around this code sees the functions of torch that it calls."""
    return torch._C._len_torch_function_stack() > 0


def capturing() -> bool:
    """Whether a CUDA graph is being recorded."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def uncompiled() -> AbstractContextManager[Any]:
    """Functions of a model that are compiled run as they were written: the compiler cannot trace what watches them."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and to import it takes seconds
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def at_trace_time(function: F) -> F:
    """A function that torch.compile calls while it traces, and whose result it takes for a constant.

    This is what torch.compiler.assume_constant_result does; that also loads the compiler, which takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
