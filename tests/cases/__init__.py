"""Small models and, for each, its reverse pass by hand: what d_m is, what is re-applied, what is undone.

`CASES[name]()` returns a float64 model, its inputs, and `by_hand(model, inputs)`, which gives the layers. Names that
start with "join" have no unique reverse pass.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.by_hand import Layer, lively

ByHand = Callable[[nn.Module, Any], list[Layer]]
Case = Callable[[], tuple[nn.Module, Any, ByHand]]

CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    """Remember a case under its function's name, with the same random numbers every time."""

    def seeded() -> tuple[nn.Module, Any, ByHand]:
        torch.manual_seed(0)
        net, inputs, by_hand = build()
        return lively(net), inputs, by_hand

    CASES[build.__name__] = seeded
    return build


def rows(width: int = 6, size: int = 5) -> Tensor:
    return torch.randn(size, width, dtype=torch.float64)


def images(size: int = 8) -> Tensor:
    return torch.rand(3, 2, size, size, dtype=torch.float64)


def conv(inputs: int = 2, outputs: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def pool(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2)


from tests.cases import between, joins, pictures, weights  # noqa: E402, F401
