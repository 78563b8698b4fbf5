"""What the tests of the modes share: where a layer starts, and linear layers with data for them."""

import torch
from torch import Tensor, nn

REVERSE, FORWARD = "reverse", "forward"


def linears(**sizes: tuple[int, int]) -> dict[str, nn.Module]:
    return {name: nn.Linear(*size).double() for name, size in sizes.items()}


def rows(size: int = 5) -> Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
