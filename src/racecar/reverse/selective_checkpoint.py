"""Selective checkpointing of a compiled reverse pass: which of its tensors are kept for the backward pass.

Left to itself, torch.compile keeps d', d' − b, 2(d − d') and more of every layer. All of them are cheap to recompute
from the products Mᵀy, so only the products are kept, and the results of reductions: the statistics of norms and each
√Σ d². On a slice of the batch recomputing costs next to nothing; on the whole batch its time would outweigh the memory.
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
"""The operations whose results are kept."""


def _policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


_contexts = partial(create_selective_checkpoint_contexts, _policy)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Whether a log record is any but torch's reminder not to change tensors in place in a selective checkpoint: the
    reverse pass changes none."""
    return "context_fn is passed to torch.utils.checkpoint" not in record.getMessage()


@at_trace_time
def _filter_log() -> bool:
    """Keep torch's reminder about selective checkpoints out of its log, which it writes at the end of a trace."""
    logging.getLogger(CHECKPOINT_LOG).addFilter(_is_relevant)
    return True


def selective_checkpoint(function: Callable[[], T]) -> T:
    """The result of ``function()``, traced by torch.compile as a selective checkpoint."""
    _filter_log()
    return checkpoint(function, use_reentrant=False, context_fn=_contexts)
