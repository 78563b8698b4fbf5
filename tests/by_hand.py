"""The contract's reverse pass written by hand, from the paper's equations: what the tests hold the engine against.

Nothing here comes from `racecar`. A `Layer` says what d_m is, where its layer ends (`out`, d_(m+1)), and how a tensor
there goes back to d'_m; `rebuild` runs them in the contract's modes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Back = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """A model from one function: `Net(lambda m, x: m.b(m.a(x)), a=nn.Linear(3, 2), b=nn.Linear(2, 3))`."""

    def __init__(self, function: Callable[..., Any], **parts: Any):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Layer(NamedTuple):
    """One weighted operation m: its name, d_m, the layer's forward output d_(m+1), and d_(m+1) ↦ d'_m."""

    name: str
    d: Tensor
    out: Tensor
    back: Back
    above: str | None = None
    """The layer whose d' it starts from where the reverse pass is unique; None where that starts from `out`."""


def chain(names: Sequence[str], ds: Sequence[Tensor], backs: Sequence[Back]) -> list[Layer]:
    """Layers in one unique way: d1 … d(n+1), one more d than names."""
    above = (*names[1:], None)
    return [Layer(*one) for one in zip(names, ds[:-1], ds[1:], backs, above, strict=True)]


def rebuild(layers: Sequence[Layer], layerwise: bool) -> dict[str, Tensor]:
    """d'_m of every layer."""
    rebuilt: dict[str, Tensor] = {}
    for layer in reversed(layers):
        start = layer.out if layerwise or layer.above is None else rebuilt[layer.above]
        rebuilt[layer.name] = layer.back(start)
    return rebuilt


def squares(x: Tensor) -> Tensor:
    """‖x‖²."""
    return (x * x).sum()


def undo_linear(layer: nn.Linear, y: Tensor) -> Tensor:
    """Mᵀ(y − b)."""
    return (y if layer.bias is None else y - layer.bias) @ layer.weight


def undo_conv(layer: nn.Conv2d, y: Tensor) -> Tensor:
    """The transposed convolution; for stride 1, also with an even "same" kernel, which pads one more at the end."""
    assert layer.stride == (1, 1)
    y = y if layer.bias is None else y - layer.bias[:, None, None]
    full = F.conv_transpose2d(y, layer.weight)  # as if nothing had been padded
    size = layer.kernel_size[0]
    before, after = ((size - 1) // 2, size // 2) if layer.padding == "same" else (layer.padding[0],) * 2
    return full[..., before : full.shape[-2] - after, before : full.shape[-1] - after]


def up(y: Tensor, times: int = 2) -> Tensor:
    """Nearest up-sampling."""
    return y.repeat_interleave(times, -1).repeat_interleave(times, -2)


def batch_norm(layer: nn.Module, x: Tensor) -> Tensor:
    """(N, C, …), with the statistics of x in training and the running ones in eval."""
    dims = [d for d in range(x.dim()) if d != 1]
    shape = (-1, *(1,) * (x.dim() - 2))
    if layer.training:
        mean, var = x.mean(dims), x.var(dims, unbiased=False)
    else:
        mean, var = layer.running_mean, layer.running_var
    x = (x - mean.view(shape)) / (var.view(shape) + layer.eps).sqrt()
    return x * layer.weight.view(shape) + layer.bias.view(shape)


def lively(model: nn.Module, seed: int = 0) -> nn.Module:
    """float64, and norms whose scales, shifts and running statistics are not the usual ones and zeros."""
    random = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5, generator=random)
            module.bias.data.normal_(0, 0.3, generator=random)
            module.running_mean.normal_(0, 0.3, generator=random)
            module.running_var.uniform_(0.5, 2, generator=random)
        elif isinstance(module, nn.LayerNorm):
            module.weight.data.uniform_(0.5, 1.5, generator=random)
            module.bias.data.normal_(0, 0.3, generator=random)
    return model.double()


def close(got: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Equal to 1e-9 of the size of the numbers."""
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
