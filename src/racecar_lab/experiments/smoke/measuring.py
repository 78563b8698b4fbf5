"""Measures of a trained generator on held-out plumes: super-resolution, and recovery of its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.inspect import psnr, ssim
from racecar_lab.datasets.smoke import checksum
from racecar_lab.experiment import Measured, Split, Trained
from racecar_lab.experiments.shared import run_back
from racecar_lab.measures.recovery import recovery
from racecar_lab.measures.spectrum import energy_spectrum, spectrum_distance
from racecar_lab.networks.smoke import FACTOR, lowered

BATCH = 120
"""Number of frames that are evaluated at once."""
SHOWN = 4
"""Number of frames that are recorded as pictures."""


def measure_generator(trained: Trained, reverse: Mapping[str, Any]) -> Measured:
    """Measure super-resolution and the recovered low resolution: metrics, and examples as pictures. In a search, only
    the metrics, on the plumes that it holds out. ``reverse`` has arguments of ``Racecar``."""
    generator: nn.Module = trained.model["generator"]  # type: ignore[index]
    kind, split = trained.task.evaluated
    low = lowered(split.x)
    high = outputs(generator, low)
    options = {**reverse, "scale": "relative"}
    rebuilt, reverse_loss = run_back(generator, low, options, BATCH)
    metrics = {
        **{f"{kind}_{name}": value for name, value in quality(high, split.x).items()},
        **recovery(low, rebuilt),
        "reverse_loss": reverse_loss,
    }
    if kind == "valid":
        return Measured(metrics)
    baseline = quality(bicubic(low), split.x)
    metrics |= {f"bicubic_{name}": baseline[name] for name in ("l2", "ssim", "spectrum")}
    shown = examples(split)
    arrays = {
        name: as_bytes(x[shown]) for name, x in (("low", low), ("high", high), ("truth", split.x), ("rebuilt", rebuilt))
    }
    spectra = torch.stack([energy_spectrum(x) for x in (high, split.x, bicubic(low))]).float().cpu()
    return Measured(metrics, {"data": checksum(trained.folder)}, {**arrays, "spectra": spectra})


@torch.no_grad()
def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """Output of a network for x (N, …), computed in batches."""
    return torch.cat([network(batch) for batch in x.split(BATCH)])


def bicubic(low: Tensor) -> Tensor:
    """Enlarge the low resolution by bicubic interpolation, the baseline of every generator."""
    return F.interpolate(low, scale_factor=FACTOR, mode="bicubic", align_corners=False)


def quality(high: Tensor, truth: Tensor) -> dict[str, float]:
    """Mean square error, PSNR, SSIM and distance of energy spectra between pictures and truth, both (N, 1, H, W) in
    [0, 1]."""
    l2 = (high - truth).square().mean((1, 2, 3))
    batches = zip(high.clamp(0, 1).split(BATCH), truth.split(BATCH), strict=True)
    return {
        "l2": float(l2.mean()),
        "psnr": float(psnr(high.flatten().unsqueeze(0), truth.flatten().unsqueeze(0))),
        "ssim": float(torch.cat([ssim(*pair) for pair in batches]).mean()),
        "spectrum": spectrum_distance(high, truth),
    }


def examples(split: Split) -> Tensor:
    """Indices of the frames that are recorded as pictures: one of each of the first plumes, at a later time for each
    further plume."""
    plumes = split.y.unique()[:SHOWN]
    indices = []
    for i, plume in enumerate(plumes):
        frames = (split.y == plume).nonzero()[:, 0]
        time = 0.4 + 0.5 * i / max(1, len(plumes) - 1)
        indices.append(frames[round(time * (len(frames) - 1))])
    return torch.stack(indices)


def as_bytes(x: Tensor) -> Tensor:
    """Turn pixels in [0, 1] into uint8, on the CPU."""
    return (255 * x.float().clamp(0, 1)).round().byte().cpu()
