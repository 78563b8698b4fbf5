"""Code that several experiments share: nets and their initial weights, λ of variants, pictures, reverse losses."""

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
WEIGHTS = {"Ort": 1e-2, "OrtB": 1e-2, "WD": 1e-4, "Drop": 0.1}
"""Default λ of the variants without a reverse pass."""
OURS = ("RR", "lRR", "RR1")
"""Variants with a reverse pass."""


def weight_of(variant: str, ours: float, **overrides: float) -> float:
    """The default λ of a variant.

    Args:
        variant: name of the variant.
        ours: λ of variants with a reverse pass.
        overrides: variant → λ that an experiment has instead of the one in ``WEIGHTS``.
    """
    return {**WEIGHTS, **overrides}.get(variant, ours)


def _as_torch(module: nn.Conv2d) -> None:
    module.reset_parameters()


def _he(module: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]


def _orthogonal(module: nn.Conv2d) -> None:
    nn.init.orthogonal_(module.weight, math.sqrt(2))
    nn.init.zeros_(module.bias)  # type: ignore[arg-type]


FIRST_WEIGHTS: dict[str, Callable[[nn.Conv2d], None]] = {"torch": _as_torch, "he": _he, "orthogonal": _orthogonal}
"""Kind of initial weights, the value of a configuration's ``start`` → function that sets those of a convolution."""


def started(model: M, start: str = "torch") -> M:
    """Set the initial weights of all convolutions by ``FIRST_WEIGHTS[start]``, and return the model. VGG's own weights
    make the reverse pass explode without batch norm."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            FIRST_WEIGHTS[start](module)
    return model


def refuse_depth(depth: int) -> None:
    """Raise a ValueError unless ``depth`` convolutions make three equal blocks, as 3, 6 or 9 do."""
    if depth < 3 or depth % 3:
        raise ValueError(f"depth must be 3, 6, 9 …, not {depth!r}: there are three blocks")


def three_blocks(widths: Sequence[int], depth: int, *, norm: bool, start: str, **options: Any) -> VGG:
    """A VGG net of three blocks, after each of which the picture is halved. The initial weights are the same with and
    without batch norm.

    Args:
        widths: channels of the three blocks.
        depth: number of convolutions in all: 3, 6, 9 …
        norm: True for batch norm after every convolution.
        start: initial weights of the convolutions, one of ``FIRST_WEIGHTS``.
        options: further arguments of ``vgg``.
    """
    layout: list[int | str] = []
    for width in widths:
        layout += [*[width] * (depth // 3), "M"]
    return started(vgg(layout, norm=norm, **options), start)


def standardised(task: Task) -> Task:
    """A task of pictures (N, C, H, W), shifted and scaled so that every colour of the training set has mean 0 and
    standard deviation 1."""
    sd, mean = torch.std_mean(task.train.x, (0, 2, 3), keepdim=True)

    def standardise(split: Split) -> Split:
        return Split((split.x - mean) / sd, split.y)

    valid = None if task.valid is None else standardise(task.valid)
    return Task(standardise(task.train), standardise(task.test), valid)


@torch.no_grad()
def mean_terms(rr: Racecar, x: Tensor, batch: int, before: Callable[[Tensor], Any] = lambda part: None) -> float:
    """Reverse loss for samples x (N, …): the mean of ``rr.terms`` over layers and samples, computed in batches of
    ``batch`` samples. ``before`` is called with each batch first."""
    total = torch.zeros((), device=x.device)
    for part in x.split(batch):
        before(part)
        rr(part)
        total += torch.stack(list(rr.terms.values())).mean() * len(part)
    return float(total) / len(x)


@torch.no_grad()
def run_back(model: nn.Module, x: Tensor, options: Mapping[str, Any], batch: int = 1000) -> tuple[Tensor, float]:
    """Run the full reverse pass for x (N, …). Return the inputs that it rebuilds, and the reverse loss, mean over
    layers and samples. Batch norm uses the statistics of the batch, as in training. The model is not changed;
    ``options`` are arguments of ``Racecar``."""
    rr = Racecar(copy.deepcopy(model).train(), x[:2], mode="full", **options)
    rebuilt: list[Tensor] = []

    def rebuild(part: Tensor) -> None:
        inputs = rr.reconstruct(part)[0]
        assert inputs is not None
        rebuilt.append(inputs)

    error = mean_terms(rr, x, batch, before=rebuild)
    return torch.cat(rebuilt), error
