"""Which precision numbers are summed in."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(d: Tensor) -> torch.dtype:
    """The precision in which terms are summed: float32, or float64 for a model in float64."""
    return torch.float64 if d.dtype == torch.float64 else torch.float32
