"""What several experiments share: nets and their first weights, coefficients, pictures, the reverse loss of samples."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from racecar import Racecar
from racecar_lab.experiment import Split, Task
from racecar_lab.networks.vgg import VGG, vgg

M = TypeVar("M", bound=nn.Module)
COEFFICIENTS = {"Ort": 1e-2, "OrtB": 1e-2, "WD": 1e-4, "Drop": 0.1}
"""Of other regularisers than ours, unless an experiment has its own."""


OURS = ("RR", "lRR", "RR1")
"""Variants with a reverse pass."""


def coefficient_of(variant: str, ours: float, **own: float) -> float:
    """What a variant's regulariser is multiplied by: an experiment's own, or the usual one, or else λ."""
    return {**COEFFICIENTS, **own}.get(variant, ours)


def _as_torch(module: nn.Conv2d) -> None:
    module.reset_parameters()


def _he(module: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]


def _orthogonal(module: nn.Conv2d) -> None:
    nn.init.orthogonal_(module.weight, math.sqrt(2))
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]


FIRST_WEIGHTS: dict[str, Callable[[nn.Conv2d], None]] = {"torch": _as_torch, "he": _he, "orthogonal": _orthogonal}
"""First weights of a convolution."""


def started(model: M, start: str = "torch") -> M:
    """First weights of all convolutions. Without batch norm, VGG's own make the reverse pass explode."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            FIRST_WEIGHTS[start](module)
    return model


def refuse_depth(depth: int) -> None:
    """What is no number of convolutions for three blocks."""
    if depth < 3 or depth % 3:
        raise ValueError(f"depth must be 3, 6, 9 …, not {depth!r}: there are three blocks")


def three_blocks(widths: Sequence[int], depth: int, *, norm: bool, start: str, **more: Any) -> VGG:
    """So many convolutions in three blocks of these widths; the picture is halved after each. First weights are the
    same with and without batch norm.

    Args:
        more: arguments of ``vgg``.
    """
    layout: list[int | str] = []
    for width in widths:
        layout += [*[width] * (depth // 3), "M"]
    return started(vgg(layout, norm=norm, **more), start)


def standardised(task: Task) -> Task:
    """Pictures (N, C, H, W) with mean 0 and standard deviation 1 in every colour of the training set."""
    sd, mean = torch.std_mean(task.train.x, (0, 2, 3), keepdim=True)

    def like_train(one: Split) -> Split:
        return Split((one.x - mean) / sd, one.y)

    valid = None if task.valid is None else like_train(task.valid)
    return Task(like_train(task.train), like_train(task.test), valid)


@torch.no_grad()
def mean_terms(rr: Racecar, x: Tensor, batch: int, before: Callable[[Tensor], Any] = lambda part: None) -> float:
    """The mean of the terms over layers and samples x (N, …), taken in batches; ``before`` sees each batch first."""
    total = torch.zeros((), device=x.device)
    for part in x.split(batch):
        before(part)
        rr(part)
        total += torch.stack(list(rr.terms.values())).mean() * len(part)
    return float(total) / len(x)


@torch.no_grad()
def run_back(model: nn.Module, x: Tensor, options: Mapping[str, Any], batch: int = 1000) -> tuple[Tensor, float]:
    """Inputs x (N, …) as the full reverse pass from the last convolution rebuilds them; and the relative reverse loss:
    mean over the layers; batch norm has the statistics of the batch, as in training. The model is not changed."""
    rr = Racecar(copy.deepcopy(model).train(), x[:2], mode="full", **options)
    back: list[Tensor] = []

    def rebuild(part: Tensor) -> None:
        first = rr.reconstruct(part)[0]
        assert first is not None
        back.append(first)

    error = mean_terms(rr, x, batch, before=rebuild)
    return torch.cat(back), error
