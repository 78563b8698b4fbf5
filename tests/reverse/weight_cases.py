"""A chain of three layers and its terms by hand, layer by layer."""

import torch
from torch import Tensor, nn

from tests.by_hand import squares, undo_linear


def chain() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return net, torch.randn(5, 4, dtype=torch.float64)


def terms(net: nn.Sequential, x: Tensor, scale: str = "sum") -> dict[str, Tensor]:
    """By hand, layer by layer."""
    d2 = torch.tanh(net[0](x))
    d3 = torch.tanh(net[2](d2))
    pairs = {
        "0": (x, undo_linear(net[0], d2)),
        "2": (d2, torch.tanh(undo_linear(net[2], d3))),
        "4": (d3, torch.tanh(undo_linear(net[4], net[4](d3)))),
    }
    return {name: squares(d - back).detach() for name, (d, back) in pairs.items()}
