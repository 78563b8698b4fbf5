"""Results written by hand for the tests of figures, and helpers that read a figure."""

import math
from collections.abc import Callable
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from racecar.inspect.information_plane import InformationPlane, PlaneRow
from racecar.inspect.invertibility import Depth, Invertibility
from racecar.inspect.leakage import Leak, Leakage
from racecar.inspect.plasticity import LayerPlasticity, Plasticity
from racecar.inspect.similarity import Matches, Similarity
from racecar.inspect.singular_vectors import SingularVectors

VARIANTS = ("Std", "Ort", "Pre", "RR", "RR1", "lRR")


def settings() -> dict[str, Any]:
    """All settings of matplotlib but the backend, because reading that one loads pyplot."""
    return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != "backend"}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def vectors(k: int = 5, shape: tuple[int, ...] = (1, 4, 4), data: bool = True, layer: str = "conv1") -> SingularVectors:
    rows = torch.linalg.qr(drawn(math.prod(shape), k) - 0.5)[0].T
    values = torch.linspace(2, 0.5, k, dtype=torch.float64)
    return SingularVectors(layer, values, rows, shape, drawn(k).softmax(0) if data else None, False, "value")


def similar(seed: int = 0, pictures: bool = True, lpips: bool = True) -> Similarity:
    def matches(distance: bool = False) -> Matches:
        return Matches(drawn(3, 4, seed=seed), distance)

    angles = drawn(3, seed=seed).sort()[0] * math.pi / 2
    return Similarity(angles, matches(), matches() if pictures else None, matches(True) if lpips else None)


def plane(seed: int = 0, h_x: float = 4.0, h_y: float = 1.0, layers: int = 4) -> InformationPlane:
    """An information plane whose first row, the input, is at the ceiling."""
    share = [1.0, *drawn(layers - 1, seed=seed).sort(descending=True)[0].tolist()]
    rows = [
        PlaneRow(f"d{i + 1}", str(i), "tanh", h_x * s, h_y * s, 3, 30, "fixed", (-1.0, 1.0), s == 1, None)
        for i, s in enumerate(share)
    ]
    return InformationPlane(tuple(rows), 16, 16, h_x, h_y)


def inverse(
    way: tuple[float | None, ...] = (0.5, 0.1, 0.9),
    alone: tuple[float | None, ...] = (0.3, 0.05, 0.9),
    inputs: Tensor | None = None,
    depths: int | None = None,
) -> Invertibility:
    """An invertibility result; ``depths``: from how many depths the input could be rebuilt."""
    inputs = drawn(4, 3, 6, 6) if inputs is None else inputs
    rebuilt = {f"d{i + 2}": inputs * 0.9**i for i in range(len(way) if depths is None else depths)}
    rows = [
        Depth(f"d{i + 1}", f"layer{i}", "conv2d", one, other, 0.5, 10.0, 0.5, "")
        for i, (one, other) in enumerate(zip(way, alone, strict=True))
    ]
    return Invertibility("full", tuple(rows), inputs, rebuilt, 1.0)


def leak(names: str = "d2 d3 d4", seed: int = 0, pictures: bool = True) -> Leakage:
    leaks = []
    for i, name in enumerate(names.split()):
        adjusted, psnr, ssim = drawn(3, seed=seed + i).tolist()
        leaks.append(
            Leak(name, f"layer{i}", adjusted - 1, adjusted, *((9 + psnr, ssim) if pictures else (None,) * 2), "")
        )
    return Leakage(tuple(leaks), 10.0 if pictures else None, 0.01 if pictures else None, ())


def history(steps: int = 3, known: bool = True) -> list[tuple[int, Plasticity]]:
    """The plasticity of two layers over some steps; ``known``: whether their linear maps are known."""

    def layer(name: str, step: int) -> LayerPlasticity:
        dead, rank, *gains, error = drawn(6, seed=step).tolist()
        found = (*sorted(gains), error) if known else (None,) * 4
        return LayerPlasticity(name, "linear", 8, dead, 8 * rank, *found)

    return [(10 * step, Plasticity((layer("first", step), layer("second", step)))) for step in range(steps)]


def variants(make: Callable[[int], Any]) -> dict[str, Any]:
    return {name: make(seed) for seed, name in enumerate(VARIANTS)}


DEPTHS = ["d1", "d2", "d3"]


def marked(axis: Axes) -> list[Any]:
    """The lines that show data: those with a marker."""
    return [line for line in axis.lines if line.get_marker() not in ("None", "", None)]


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(expected, float), rtol=1e-12)
