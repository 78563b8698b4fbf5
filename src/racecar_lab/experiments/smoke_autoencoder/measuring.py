"""Measures of a trained autoencoder: its error on held-out pictures, and how soon it fell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.inspect import ssim
from racecar_lab.experiment import Measured, Task, Trained
from racecar_lab.experiments.smoke.measuring import BATCH, SHOWN, as_bytes, outputs
from racecar_lab.experiments.smoke.splitting import evenly_spaced
from racecar_lab.training.recipe import Batch, Call

LOOK_PICTURES = 64
"""Largest number of held-out pictures with which the error is measured during training."""
MAP_SQUARE = 4
"""Side in pixels of the squares over which a map of the error is averaged, so that records stay small."""


def rebuild(autoencoder: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    """Mean square error between the autoencoder's output and its input: its training loss."""
    return F.mse_loss(autoencoder(batch.x), batch.x)


def error(network: nn.Module, x: Tensor) -> Tensor:
    """Mean square error between a network's outputs for pictures x (N, C, H, W) and these."""
    return (outputs(network, x) - x).square().mean()


def look(model: Any, task: Task) -> dict[str, Tensor]:
    """Return the autoencoder's error on some held-out pictures. The trainer calls this at several moments of a
    training."""
    indices = evenly_spaced(torch.arange(len(task.test)), LOOK_PICTURES).to(task.test.x.device)
    return {"error": error(model["autoencoder"], task.test.x[indices])}


def measure_autoencoder(trained: Trained, tables: dict[str, Any]) -> Measured:
    """Errors of an autoencoder on held-out pictures, with arrays for the figures; in a search, only the metrics that it
    needs. ``tables`` are recorded beside them."""
    network: nn.Module = trained.model["autoencoder"]  # type: ignore[index]
    kind, split = trained.task.evaluated
    rebuilt = outputs(network, split.x)
    energy = split.x.square().mean().clamp(min=torch.finfo(split.x.dtype).tiny)
    l2 = (rebuilt - split.x).square().mean()
    metrics = {f"{kind}_l2": float(l2), f"{kind}_relative": float(l2 / energy)}
    if kind == "valid":
        return Measured(metrics)
    pairs = zip(rebuilt.clamp(0, 1).split(BATCH), split.x.split(BATCH), strict=True)
    curve = trained.history["error"].double()
    errors = (rebuilt - split.x).abs().mean(1, keepdim=True)
    metrics |= {
        "test_mae": float(errors.mean()),
        "test_ssim": float(torch.cat([ssim(a, b) for a, b in pairs]).mean()),
        "learning": float((curve / energy.cpu()).clamp(min=1e-12).log10().mean()),
    }
    shown = evenly_spaced(torch.arange(len(split)), SHOWN).to(split.x.device)
    arrays = {
        "truth": as_bytes(split.x[shown]),
        "again": as_bytes(rebuilt[shown]),
        "mae": F.avg_pool2d(errors, MAP_SQUARE).mean(0, keepdim=True).float().cpu(),
        "curve": curve.float().cpu(),
    }
    return Measured(metrics, tables, arrays)
