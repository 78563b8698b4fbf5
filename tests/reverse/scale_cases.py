"""The scales by formula, and a chain whose d and d' are known."""

import torch
from torch import Tensor, nn

from tests.by_hand import squares, undo_linear

SCALES = ["relative", "ratio", "mean", "sum"]


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5)).double()


def rows(size: int = 6) -> Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def pairs(net: nn.Sequential, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """(d, d') of `chain`, the full way."""
    d2 = torch.tanh(net[0](x))
    back2 = torch.tanh(undo_linear(net[2], net[2](d2)))
    return {"0": (x, undo_linear(net[0], back2)), "2": (d2, back2)}


def formula(d: Tensor, back: Tensor, scale: str) -> Tensor:
    if scale == "relative":
        return squares(d - back) / squares(d).detach()
    if scale == "ratio":
        return squares(d - back) / squares(d)
    return ((d - back) ** 2).mean() if scale == "mean" else squares(d - back)
