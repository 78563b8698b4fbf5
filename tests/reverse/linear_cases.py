"""Nets for mode "linear", and its terms worked out another way: A is the module less what it gives on zeros, Aᵀ comes
from autograd."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import squares

Map = Callable[[Tensor], Tensor]
SCALES = ["relative", "ratio", "anchored", "mean", "sum"]


def wrapped(model: nn.Module, x: Any, **given: Any) -> Racecar:
    return Racecar(model, x, **{"mode": "linear", "weight": 1.0, "reduction": "sum", **given})


def gradients(loss: Tensor, *tensors: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, tensors, allow_unused=True)
    return [torch.zeros_like(t) if one is None else one for t, one in zip(tensors, found, strict=True)]


def there_and_back(layer: Map, h: Tensor) -> Tensor:
    """AᵀAh of an affine map."""
    start = torch.zeros_like(h, requires_grad=True)
    zero = layer(start)
    return torch.autograd.grad(zero, start, layer(h) - layer(torch.zeros_like(h)), create_graph=True)[0]


def reads(model: nn.Module, x: Any, maps: Mapping[str, Map], n: int | None = None) -> dict[str, Tensor]:
    """What the module of each layer reads of the first n samples, in one pass through the model."""
    found: dict[str, Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_pre_hook(lambda _, args, name=name: found.update({name: args[0]}))
        for name in maps
    ]
    model(x)
    for hook in hooks:
        hook.remove()
    return {name: one[:n] for name, one in found.items()}


def by_hand(
    model: nn.Module, x: Tensor, maps: Mapping[str, Map], gradient: str, scale: str = "relative", fraction: float = 1.0
) -> dict[str, Tensor]:
    """The terms by layer."""
    n, energy = round(fraction * len(x)), x.detach().square().mean()
    terms = {}
    for name, h in reads(model, x, maps, n).items():
        h = h if gradient == "both" else h.detach()
        by = {"relative": squares(h).detach(), "ratio": squares(h), "anchored": h.numel() * energy, "mean": h.numel()}
        terms[name] = squares(there_and_back(maps[name], h) - h) / by.get(scale, fraction)
    return terms


def sequential(shape: tuple[int, ...], *modules: nn.Module) -> Callable[[], tuple[nn.Module, Tensor, dict[str, Map]]]:
    def build() -> tuple[nn.Module, Tensor, dict[str, Map]]:
        random = torch.Generator().manual_seed(0)
        model = copy.deepcopy(nn.Sequential(*modules)).double()
        for p in model.parameters():
            p.data.normal_(0, 0.5, generator=random)
        weighted = (nn.Linear, nn.modules.conv._ConvNd)
        maps = {name: one for name, one in model.named_modules() if isinstance(one, weighted)}
        x = torch.randn(4, *shape, generator=random, dtype=torch.float64)
        return model, x.requires_grad_(), maps

    return build


CASES = {
    "linear, tokens": sequential((3, 4), nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2, bias=False)),
    "conv1d": sequential((3, 9), nn.Conv1d(3, 4, 3, stride=2, padding=1, dilation=2), nn.Tanh(), nn.Conv1d(4, 2, 2)),
    "conv2d, pooled": sequential(
        (2, 8, 7), nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), groups=2), nn.Tanh(), nn.Conv2d(6, 3, 1, bias=False),
    ),
    "depthwise": sequential(
        (4, 5, 5), nn.Conv2d(4, 8, 3, padding="same", groups=4), nn.SiLU(), nn.Conv2d(8, 2, 2, padding="same"),
    ),
    "padding valid": sequential((2, 6), nn.Conv1d(2, 3, 3, padding="valid", stride=2)),
    "circular, reflect": sequential(
        (2, 6, 6), nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Tanh(),
        nn.Conv2d(3, 2, 3, padding=2, padding_mode="reflect", stride=2),
    ),
    "conv3d": sequential((2, 4, 5, 4), nn.Conv3d(2, 3, 2, stride=2), nn.Tanh(), nn.Conv3d(3, 2, 1)),
    "transposed": sequential(
        (3, 4), nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), nn.Tanh(),
        nn.ConvTranspose1d(4, 2, 2, groups=2, dilation=2),
    ),
    "transposed 2d": sequential((2, 3, 3), nn.ConvTranspose2d(2, 3, 3, stride=2, bias=False)),
    "shapes": sequential(
        (2, 4, 4), nn.ZeroPad2d(1), nn.Conv2d(2, 3, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 5),
    ),
}  # fmt: skip
