"""What a compiled step keeps of the reverse pass until the backward pass.

Left to itself, torch.compile keeps d', d' − b, 2(d − d') and more of every layer. All of them are cheap to recompute
from the products Mᵀy, so only those are kept, and what was summed: the statistics of norms and each √Σ d². On a slice
of the batch that costs next to nothing; on the whole batch the time would count for more than the memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from racecar.support.torch_private import CHECKPOINT_LOG, at_trace_time

T = TypeVar("T")

_aten = torch.ops.aten
_KEPT = (
    _aten.convolution.default,
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.var_mean.correction,
    _aten.linalg_vector_norm.default,
    _aten.cumsum.default,
)


def _policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


_contexts = partial(create_selective_checkpoint_contexts, _policy)


def _is_news(record: logging.LogRecord) -> bool:
    """Torch asks, in its log, not to change anything in place in such a place; nothing does here."""
    return "context_fn is passed to torch.utils.checkpoint" not in record.getMessage()


@at_trace_time
def _hush() -> bool:
    """Leave that out of the log, from the first slice that is compiled: torch says it when it is done with tracing."""
    logging.getLogger(CHECKPOINT_LOG).addFilter(_is_news)
    return True


def selective_checkpoint(function: Callable[[], T]) -> T:
    """``function()``, while torch.compile traces."""
    _hush()
    return checkpoint(function, use_reentrant=False, context_fn=_contexts)
