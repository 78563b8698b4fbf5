"""The precision in which numbers are summed."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(d: Tensor) -> torch.dtype:
    """The dtype in which terms of a tensor are summed: float64 for float64, else float32."""
    return torch.float64 if d.dtype == torch.float64 else torch.float32
