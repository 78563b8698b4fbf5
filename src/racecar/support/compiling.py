"""Whether the code runs compiled or is recorded as a CUDA graph: the one place where this is asked."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from racecar.support.torch_private import compiler_is_loaded

compiling = torch.compiler.is_compiling
"""Whether torch.compile traces this code. It is torch's own function, which the compiler takes for a constant."""


def capturing() -> bool:
    """Whether a CUDA graph is being recorded."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def uncompiled() -> AbstractContextManager[Any]:
    """Context manager: compiled functions inside a model run uncompiled, so that their calls can be recorded."""
    if not compiler_is_loaded():
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
