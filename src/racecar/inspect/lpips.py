"""LPIPS v0.1: a perceptual distance between pictures, by the features of a trained network (Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike, fspath

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.support.extras import need
from racecar.support.precision import wide

Weights = Mapping[str, Tensor]
"""Name → array of a weights file."""

FIRES = (3, 4, 6, 7, 9, 10, 11, 12)  # SqueezeNet 1.1: indices of its Fire modules
FIRE = {"squeeze": 1, "expand1x1": 1, "expand3x3": 3}
KERNELS = {  # every convolution and the side of its kernel
    "AlexNet": {"features.0": 11, "features.3": 5, "features.6": 3, "features.8": 3, "features.10": 3},
    "SqueezeNet": {"features.0": 3} | {f"features.{i}.{part}": side for i in FIRES for part, side in FIRE.items()},
}
HEADS = {"AlexNet": 5, "SqueezeNet": 7}
SMALLEST = {"AlexNet": 31, "SqueezeNet": 17}  # below it, a pooling has nothing left to pool
SHIFT = (-0.030, -0.088, -0.188)  # ImageNet's mean and deviation, for pixels in [-1, 1]
SCALE = (0.458, 0.448, 0.450)


class Lpips:
    """LPIPS, a function of two batches of pictures: how different they look, 0 for equal ones.

        lpips = Lpips.load("lpips_alexnet.npz")
        distance = lpips(a, b)

    It works on the device of the pictures, in float32, or in float64 for pictures in float64. It is differentiable in
    the pictures, not in the weights.

    Args:
        weights: convolutions ``features.*`` with torchvision's names and layout, and heads ``lin{i}.model.1.weight``.
            The network (AlexNet or SqueezeNet) and its channel counts are read from their names and shapes.
        name: name of the weights in error messages.
    """

    def __init__(self, weights: Weights, name: str = "weights") -> None:
        self.net = _which(weights, name)
        self._weights = {key: weights[key].detach().float() for key in _shapes(self.net)}
        _check(self._weights, self.net, name)
        try:
            self(*torch.zeros(2, 1, 3, SMALLEST[self.net], SMALLEST[self.net]))
        except RuntimeError as error:
            raise ValueError(f"{name}: the channels of one layer do not fit the next: {error}") from None

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Lpips:
        """Make an Lpips with the weights in an .npz or .safetensors file."""
        path = fspath(path)
        return cls(_read(path), path)

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Distance of each picture a[i] from b[i].

        Args:
            a, b: pictures of one shape, (N, 3, H, W), or (N, 1, H, W) for grey ones, with values in [-1, 1].

        Returns:
            (N,) distances.
        """
        if a.shape != b.shape:
            raise ValueError(f"a and b must have the same shape, not {tuple(a.shape)} and {tuple(b.shape)}")
        pairs = zip(self.features(a), self.features(b), strict=True)
        layers = [F.conv2d((f - g).square(), self._head(i, f)).mean((1, 2, 3)) for i, (f, g) in enumerate(pairs)]
        return torch.stack(layers).sum(0)

    def pairwise(self, a: Tensor, b: Tensor, batch: int = 128) -> Tensor:
        """Distance of every a[i] from every b[j]; the network runs once on each picture if b fits into one batch.

        Args:
            a: (Na, 3 or 1, H, W), values in [-1, 1].
            b: (Nb, 3 or 1, H, W), values in [-1, 1].
            batch: how many pictures of a, and of b, are in memory as features at a time.

        Returns:
            (Na, Nb) distances.
        """
        if a.shape[2:] != b.shape[2:]:
            raise ValueError(f"a and b must have the same size, not {tuple(a.shape)} and {tuple(b.shape)}")
        columns = []
        for batch_b in b.split(batch):
            features_b = self.features(batch_b)
            rows = [self._between(self.features(batch_a), features_b) for batch_a in a.split(batch)]
            columns.append(torch.cat(rows))
        return torch.cat(columns, 1)

    def features(self, x: Tensor) -> list[Tensor]:
        """The features that the distance compares.

        Args:
            x: pictures (N, 3 or 1, H, W), values in [-1, 1].

        Returns:
            One tensor (N, C, H, W) for each of the network's layers, with unit norm along C.
        """
        if x.dim() != 4 or x.shape[1] not in (1, 3):
            raise ValueError(f"LPIPS compares pictures (N, 3, H, W) or (N, 1, H, W), not shape {tuple(x.shape)}")
        height, width = x.shape[2:]
        if min(height, width) < SMALLEST[self.net]:
            side = SMALLEST[self.net]
            raise ValueError(
                f"LPIPS with {self.net} needs pictures of at least {side} × {side} pixels, not {height} × {width}: "
                "enlarge them first"
            )
        x = x.to(wide(x))
        x = (x - x.new_tensor(SHIFT).view(3, 1, 1)) / x.new_tensor(SCALE).view(3, 1, 1)
        layers = _alexnet(self._weights, x) if self.net == "AlexNet" else _squeezenet(self._weights, x)
        return [f / (torch.linalg.vector_norm(f, dim=1, keepdim=True) + 1e-10) for f in layers]

    def _between(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """Distances (Na, Nb) between the features of a and of b: Σ w (f − g)² as Σ w f² + Σ w g² − 2 Σ w f g, where the
        last sum is one matrix product per layer."""
        layers = []
        for i, (f, g) in enumerate(zip(a, b, strict=True)):
            root = self._head(i, f).sqrt()  # heads are never negative
            f, g = (f * root).flatten(2), (g * root).flatten(2)
            squares = f.square().sum((1, 2))[:, None] + g.square().sum((1, 2))
            layers.append((squares - 2 * f.flatten(1) @ g.flatten(1).T) / f.shape[2])
        return torch.stack(layers).sum(0).clamp(min=0)  # rounding may go below 0

    def _head(self, i: int, like: Tensor) -> Tensor:
        return self._weights[f"lin{i}.model.1.weight"].to(like)

    def __repr__(self) -> str:
        return f"Lpips({self.net})"


def _conv(weights: Weights, name: str, x: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    weight, bias = weights[f"{name}.weight"].to(x), weights[f"{name}.bias"].to(x)
    return F.relu(F.conv2d(x, weight, bias, stride, padding))


def _alexnet(weights: Weights, x: Tensor) -> Iterator[Tensor]:
    for place, stride, padding in ((0, 4, 2), (3, 1, 2), (6, 1, 1), (8, 1, 1), (10, 1, 1)):
        if place in (3, 6):
            x = F.max_pool2d(x, 3, 2)
        x = _conv(weights, f"features.{place}", x, stride, padding)
        yield x


def _squeezenet(weights: Weights, x: Tensor) -> Iterator[Tensor]:
    x = _conv(weights, "features.0", x, stride=2)
    yield x
    for place in FIRES:
        if place in (3, 6, 9):
            x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        x = _conv(weights, f"features.{place}.squeeze", x)
        expand1x1 = _conv(weights, f"features.{place}.expand1x1", x)
        expand3x3 = _conv(weights, f"features.{place}.expand3x3", x, padding=1)
        x = torch.cat([expand1x1, expand3x3], 1)
        if place not in (3, 6):
            yield x


def _read(path: str) -> dict[str, Tensor]:
    if path.endswith(".safetensors"):
        load = need("safetensors.torch", "inspect").load_file
    else:
        numpy = need("numpy", "inspect")

        def load(path: str) -> dict[str, Tensor]:
            with open(path, "rb") as file, numpy.load(file, allow_pickle=False) as arrays:
                return {key: torch.from_numpy(arrays[key]) for key in arrays.files}

    try:
        return dict(load(path))
    except FileNotFoundError:
        raise
    except Exception as error:  # each reader has errors of its own
        raise ValueError(f"{path} cannot be read: LPIPS weights are an .npz or .safetensors file of arrays") from error


def _which(weights: Weights, name: str) -> str:
    """The network that the weights belong to: "AlexNet" or "SqueezeNet"."""
    if "features.3.squeeze.weight" in weights:
        net = "SqueezeNet"
    elif "features.3.weight" in weights:
        net = "AlexNet"
    else:
        raise ValueError(
            f"{name} holds no LPIPS weights: neither features.3.weight (AlexNet) nor features.3.squeeze.weight "
            "(SqueezeNet) is in it"
        )
    missing = [key for key in _shapes(net) if key not in weights]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(f"{name} is no complete LPIPS file for {net}: {', '.join(missing[:3])}{more} missing")
    return net


def _shapes(net: str) -> dict[str, tuple[int | None, ...]]:
    """Name → shape of every array that the network needs; None for sizes that the file decides."""
    shapes: dict[str, tuple[int | None, ...]] = {}
    for conv, side in KERNELS[net].items():
        shapes[f"{conv}.weight"] = (None, None, side, side)
        shapes[f"{conv}.bias"] = (None,)
    return shapes | {f"lin{i}.model.1.weight": (1, None, 1, 1) for i in range(HEADS[net])}


def _check(weights: Weights, net: str, name: str) -> None:
    """Raise unless every array has the right shape and finite values, and the heads are not negative."""
    for key, shape in _shapes(net).items():
        array = weights[key]
        fits = len(array.shape) == len(shape) and all(
            needed in (None, side) for needed, side in zip(shape, array.shape, strict=True)
        )
        if not fits:
            needed_shape = tuple("any" if side is None else side for side in shape)
            raise ValueError(f"{name}: {key} has shape {tuple(array.shape)}, {net} needs {needed_shape}")
        if not bool(torch.isfinite(array).all()) or (key.startswith("lin") and bool((array < 0).any())):
            raise ValueError(f"{name}: {key} has NaN, infinite or (in a head) negative values")
