"""The codes c1, c2 and c3 among the inputs of the generator: how they are drawn, put in, and read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CLASSES, NOISE = 10, 62
"""Number of values of c1, and of inputs that are noise."""
DRAWS = 3 + NOISE
"""Number of random numbers for one input."""
READINGS = CLASSES + 2
"""Number of outputs of a network that reads codes: logits of c1, then c2 and c3."""
LARGER = 1.33
"""Weight of c1 in the reverse loss, a third above that of c2 and c3, as in the paper."""


class Codes(NamedTuple):
    """The codes of N inputs."""

    c1: Tensor
    """Classes (N,), 0 to 9."""
    c23: Tensor
    """c2 and c3, (N, 2)."""


def inputs_count(code: str) -> int:
    """The number of inputs of the generator: 74 with a one-hot c1, 65 if it is a number."""
    return _width(code) + 2 + NOISE


def draw(normal: Tensor) -> tuple[Codes, Tensor]:
    """Codes and noise (N, 62) from normal numbers (N, 65): c1 has ten equally likely values, all else is uniform in
    [-1, 1], as in InfoGAN."""
    uniform = torch.special.ndtr(normal)
    c1 = (CLASSES * uniform[:, 0]).long().clamp(max=CLASSES - 1)
    rest = 2 * uniform[:, 1:] - 1
    return Codes(c1, rest[:, :2]), rest[:, 2:]


def to_inputs(codes: Codes, noise: Tensor, code: str) -> Tensor:
    """The inputs (N, 74) or (N, 65) with these codes and noise (N, 62)."""
    if code == "number":
        first = (2 * codes.c1.to(noise.dtype) / (CLASSES - 1) - 1).unsqueeze(1)
    else:
        first = torch.eye(CLASSES, device=noise.device, dtype=noise.dtype)[codes.c1]
    return torch.cat((first, codes.c23, noise), 1)


def from_inputs(x: Tensor, code: str) -> Codes:
    """The codes of inputs (N, 74) or (N, 65), which may be rebuilt ones: c1 is the largest of its ten inputs, or the
    nearest of its ten numbers."""
    width = _width(code)
    if code == "number":
        c1 = ((x[:, 0] + 1) / 2 * (CLASSES - 1)).round().clamp(0, CLASSES - 1).long()
    else:
        c1 = x[:, :width].argmax(1)
    return Codes(c1, x[:, width : width + 2])


def from_readings(readings: Tensor) -> Codes:
    """The codes that a network with outputs (N, 12) reads."""
    return Codes(readings[:, :CLASSES].argmax(1), readings[:, CLASSES:])


def readings_loss(readings: Tensor, codes: Codes) -> Tensor:
    """The loss of a network that reads codes: cross-entropy of c1 and squared errors of c2 and c3, which are the
    log-likelihood of a normal distribution of variance 1/2; mean over the samples."""
    error = (readings[:, CLASSES:] - codes.c23).square().sum(1).mean()
    return F.cross_entropy(readings[:, :CLASSES], codes.c1) + error


def code_weights(code: str) -> Tensor:
    """The weight of each input in the reverse loss, (74,) or (65,): 1.33 for c1, 1 for c2 and c3, 0 for noise."""
    weights = torch.zeros(inputs_count(code))
    weights[: _width(code)] = LARGER
    weights[_width(code) : _width(code) + 2] = 1.0
    return weights


def mean_inputs(count: int, code: str) -> Tensor:
    """The mean of all inputs, ``count`` times: (count, 74) or (count, 65)."""
    x = torch.zeros(count, inputs_count(code))
    if code != "number":
        x[:, :CLASSES] = 1 / CLASSES
    return x


def _width(code: str) -> int:
    """Number of inputs that c1 takes."""
    return 1 if code == "number" else CLASSES
