"""What an autoencoder makes of held-out pictures, and how soon it learned it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.inspect import ssim
from racecar_lab.experiment import Measured, Task, Trained
from racecar_lab.experiments.smoke.measuring import BATCH, SHOWN, as_bytes, made
from racecar_lab.experiments.smoke.splitting import spread
from racecar_lab.training.recipe import Batch, Call

LOOKED = 64
"""Held-out pictures that a look during training sees."""
MAPPED = 4
"""Side of the squares over which a map has its mean: what is kept of an error is small."""


def rebuild(autoencoder: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    return F.mse_loss(autoencoder(batch.x), batch.x)


def error(network: nn.Module, x: Tensor) -> Tensor:
    """Mean square error over pictures x (N, C, H, W)."""
    return (made(network, x) - x).square().mean()


def look(model: Any, task: Task) -> dict[str, Tensor]:
    """The error on some of what is held out."""
    some = spread(torch.arange(len(task.test)), LOOKED).to(task.test.x.device)
    return {"error": error(model["autoencoder"], task.test.x[some])}


def measured(trained: Trained, tables: dict[str, Any]) -> Measured:
    """L2, and of a search nothing more than what it needs."""
    network: nn.Module = trained.model["autoencoder"]  # type: ignore[index]
    split, kind = (trained.task.test, "test") if trained.task.valid is None else (trained.task.valid, "valid")
    again = made(network, split.x)
    size = split.x.square().mean().clamp(min=torch.finfo(split.x.dtype).tiny)
    l2 = (again - split.x).square().mean()
    metrics = {f"{kind}_l2": float(l2), f"{kind}_relative": float(l2 / size)}
    if kind == "valid":
        return Measured(metrics)
    pairs = zip(again.clamp(0, 1).split(BATCH), split.x.split(BATCH), strict=True)
    curve = trained.history["error"].double()
    away = (again - split.x).abs().mean(1, keepdim=True)
    metrics |= {
        "test_mae": float(away.mean()),
        "test_ssim": float(torch.cat([ssim(a, b) for a, b in pairs]).mean()),
        "learning": float((curve / size.cpu()).clamp(min=1e-12).log10().mean()),
    }
    some = spread(torch.arange(len(split)), SHOWN).to(split.x.device)
    arrays = {
        "truth": as_bytes(split.x[some]),
        "again": as_bytes(again[some]),
        "mae": F.avg_pool2d(away, MAPPED).mean(0, keepdim=True).float().cpu(),
        "curve": curve.float().cpu(),
    }
    return Measured(metrics, tables, arrays)
