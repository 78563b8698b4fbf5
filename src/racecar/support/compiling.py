"""Which way of running torch the code is in: eager, compiled, inside torch.func, or recorded as a CUDA graph.

Everything that asks, asks here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from racecar.support.torch_private import compiler_is_loaded

compiling = torch.compiler.is_compiling
"""Whether torch.compile traces this code. Torch's function itself: the compiler knows it, and needs no guard for it."""


def capturing() -> bool:
    """Whether a CUDA graph is being recorded."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def uncompiled() -> AbstractContextManager[Any]:
    """Functions of a model that are compiled run as they were written: the compiler cannot trace what watches them."""
    if not compiler_is_loaded():
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
