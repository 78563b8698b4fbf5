"""Random numbers of a training, drawn from its seed, stage and epoch alone, so that all engines draw the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def seed_of(*parts: object) -> int:
    """A seed for torch, computed from parts that can be anything that can be printed."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def generator(*parts: object) -> torch.Generator:
    """A random generator on the CPU, seeded by parts that can be anything that can be printed."""
    return torch.Generator().manual_seed(seed_of(*parts))


def steps_per_epoch(samples: int, batch: int) -> int:
    """Number of full batches in an epoch; 0 for ``batch`` is one batch of all samples. Samples that do not fill a batch
    are left out, in every epoch others."""
    return 1 if batch == 0 or batch >= samples else samples // batch


def order(samples: int, batch: int, seed: int, stage: str, epoch: int) -> Tensor:
    """Indices of an epoch's samples, (steps, batch): shuffled, or in their order if all samples are one batch."""
    steps = steps_per_epoch(samples, batch)
    if steps == 1 and (batch == 0 or batch >= samples):
        return torch.arange(samples).unsqueeze(0)
    shuffled = torch.randperm(samples, generator=generator("order", seed, stage, epoch))
    return shuffled[: steps * batch].view(steps, batch)


def noise(count: int, steps: int, seed: int, stage: str, epoch: int) -> Tensor:
    """Normal random numbers for the regulariser in all steps of an epoch, (steps, count)."""
    return torch.randn(steps, count, generator=generator("noise", seed, stage, epoch))


def latent(shape: Sequence[int], seed: int, stage: str, epoch: int) -> Tensor:
    """Normal random numbers for the loss in all steps of an epoch, of shape (steps, batch, …)."""
    return torch.randn(*shape, generator=generator("latent", seed, stage, epoch))
