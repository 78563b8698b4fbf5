"""Everything random in a training, from its seed alone: so that any engine, resumed or not, draws the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def seed_of(*parts: object) -> int:
    """A seed for torch from anything that can be printed."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def generator(*parts: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*parts))


def steps_per_epoch(samples: int, batch: int) -> int:
    """Full batches in an epoch; a rest that does not fill one is left out, another one in every epoch."""
    return 1 if batch == 0 or batch >= samples else samples // batch


def order(samples: int, batch: int, seed: int, stage: str, epoch: int) -> Tensor:
    """(steps, batch) indices of an epoch's samples; all of them, in their order, if they are one batch."""
    steps = steps_per_epoch(samples, batch)
    if steps == 1 and (batch == 0 or batch >= samples):
        return torch.arange(samples).unsqueeze(0)
    shuffled = torch.randperm(samples, generator=generator("order", seed, stage, epoch))
    return shuffled[: steps * batch].view(steps, batch)


def noise(count: int, steps: int, seed: int, stage: str, epoch: int) -> Tensor:
    """(steps, count) normal numbers for a regulariser that needs them."""
    return torch.randn(steps, count, generator=generator("noise", seed, stage, epoch))


def latent(shape: Sequence[int], seed: int, stage: str, epoch: int) -> Tensor:
    """Normal numbers for a loss that needs them, ``shape`` being (steps, batch, …)."""
    return torch.randn(*shape, generator=generator("latent", seed, stage, epoch))
