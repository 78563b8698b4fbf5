"""What a trained generator makes of held-out plumes, and what its reverse pass makes of that."""

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
"""Frames that are measured at once."""
SHOWN = 4
"""Frames that are kept as pictures."""


def measured(trained: Trained, reverse: Mapping[str, Any]) -> Measured:
    """Super-resolution and recovery of the low resolution; of a search, on the plumes that it holds out."""
    generator: nn.Module = trained.model["generator"]  # type: ignore[index]
    split, kind = (trained.task.test, "test") if trained.task.valid is None else (trained.task.valid, "valid")
    low = lowered(split.x)
    high = made(generator, low)
    options = {**reverse, "scale": "relative", "fraction": 1.0}
    back, terms = run_back(generator, low, options, BATCH)
    metrics = {
        **{f"{kind}_{name}": value for name, value in quality(high, split.x).items()},
        **recovery(low, back),
        "reverse_loss": terms,
    }
    if kind == "valid":
        return Measured(metrics)
    plain = quality(bicubic(low), split.x)
    metrics |= {f"bicubic_{name}": plain[name] for name in ("l2", "ssim", "spectrum")}
    some = examples(split)
    arrays = {
        name: as_bytes(x[some]) for name, x in (("low", low), ("high", high), ("truth", split.x), ("rebuilt", back))
    }
    spectra = torch.stack([energy_spectrum(x) for x in (high, split.x, bicubic(low))]).float().cpu()
    return Measured(metrics, {"data": checksum(trained.folder)}, {**arrays, "spectra": spectra})


@torch.no_grad()
def made(network: nn.Module, x: Tensor) -> Tensor:
    """What a network makes of (N, …), in batches."""
    return torch.cat([network(part) for part in x.split(BATCH)])


def bicubic(low: Tensor) -> Tensor:
    """The low resolution enlarged without any network: what a generator must beat."""
    return F.interpolate(low, scale_factor=FACTOR, mode="bicubic", align_corners=False)


def quality(high: Tensor, truth: Tensor) -> dict[str, float]:
    """Of pictures (N, 1, H, W) and what they should be, in [0, 1]: mean square error, its PSNR, SSIM, and how far the
    energy spectra are apart."""
    l2 = (high - truth).square().mean((1, 2, 3))
    seen = high.clamp(0, 1)
    found = [ssim(a, b) for a, b in zip(seen.split(BATCH), truth.split(BATCH), strict=True)]
    return {
        "l2": float(l2.mean()),
        "psnr": float(psnr(high.flatten().unsqueeze(0), truth.flatten().unsqueeze(0))),
        "ssim": float(torch.cat(found).mean()),
        "spectrum": spectrum_distance(high, truth),
    }


def examples(split: Split) -> Tensor:
    """Indices of some frames, one of each plume, later ones of later plumes."""
    plumes = split.y.unique()[:SHOWN]
    found = []
    for i, plume in enumerate(plumes):
        own = (split.y == plume).nonzero()[:, 0]
        found.append(own[round((0.4 + 0.5 * i / max(1, len(plumes) - 1)) * (len(own) - 1))])
    return torch.stack(found)


def as_bytes(x: Tensor) -> Tensor:
    """Pixels in [0, 1] as uint8, on the CPU."""
    return (255 * x.float().clamp(0, 1)).round().byte().cpu()
