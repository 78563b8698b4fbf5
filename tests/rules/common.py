"""What the tests of the rules share: small models, and the reverse pass written by hand."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from torch import Tensor, nn

from racecar.rules import Operation, find
from tests.losses import classic

drawn = settings(suppress_health_check=list(HealthCheck))
widely = settings(drawn, max_examples=5 * drawn.max_examples)
"""For what has many cases that are rarely drawn."""


class Function(nn.Module):
    """A function as a module, so that it can stand in an nn.Sequential."""

    def __init__(self, f: Callable[[Tensor], Tensor]):
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


def chain(*parts: Any) -> nn.Sequential:
    """Modules and plain functions one after the other, in float64."""
    return nn.Sequential(*(part if isinstance(part, nn.Module) else Function(part) for part in parts)).double()


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def rebuild(model: nn.Module, x: Tensor, mode: str = "layerwise") -> list[Tensor | None]:
    """d'_m of every layer; the forward pass draws the same random numbers every time."""
    (found,) = rebuild_in(model, x, mode)
    return found


def rebuild_in(model: nn.Module, x: Tensor, *modes: str) -> Iterator[list[Tensor | None]]:
    """The same in one mode after the other, of one Racecar."""
    rr = classic(model, x, scale="sum")
    for rr.mode in modes:
        torch.manual_seed(0)
        yield rr.reconstruct(x)


def forward(model: nn.Module, x: Tensor) -> Tensor:
    """The output with the random numbers that `rebuild` sees; no buffer changes."""
    torch.manual_seed(0)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad():
        return torch.func.functional_call(model, buffers, (x,))


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def same_product(ax: Tensor, y: Tensor, x: Tensor, aty: Tensor) -> None:
    """⟨Ax, y⟩ = ⟨x, Aᵀy⟩, to 1e-10 of what the two could be at most."""
    assert aty.shape == x.shape
    most = max(float(ax.norm() * y.norm()), float(x.norm() * aty.norm()), 1e-30)
    assert abs(float((ax * y).sum() - (x * aty).sum())) <= 1e-10 * most


@torch.no_grad()
def check_layer(layer: nn.Module, x: Tensor) -> None:
    """The reverse pass through an affine layer is its adjoint, without the bias; through the public interface."""
    layer = layer.double()
    for after in (nn.Identity(), nn.Tanh()):  # from the range of A, and from outside of it
        (aty,) = rebuild(nn.Sequential(layer, after), x)
        y, v = after(layer(x)) - layer(torch.zeros_like(x)), torch.randn_like(x)
        same_product(layer(v) - layer(torch.zeros_like(x)), y, v, aty)


@torch.no_grad()
def check_rule(func: Any, args: tuple[Any, ...], x: Tensor, at: int = 0, **kwargs: Any) -> None:
    """The same of the rule itself; `args` holds None where the data stands."""
    op = Operation(func, args, kwargs, at=((at,),))
    bias = op(torch.zeros_like(x))
    y = torch.randn_like(bias)
    same_product(op(x) - bias, y, x, find(func).apply(op, y + bias, x.shape))


def orthogonal(width: int) -> nn.Linear:
    """A linear layer that its transpose undoes exactly."""
    layer = nn.Linear(width, width).double()
    nn.init.orthogonal_(layer.weight)
    return layer
