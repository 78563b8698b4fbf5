"""What the first layer learned, measured as the paper does: its singular vectors beside the data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from racecar import Racecar
from racecar.inspect import Lpips, calibrate, principal_angles, similarity, singular_vectors
from racecar.support.eval_mode import eval_mode
from racecar_lab.datasets import data_folder
from racecar_lab.experiment import Measured

BEST = 2
"""Both sets have two dominant features."""


def first_layer(model: nn.Module, layer: str, data: Tensor, features: Tensor, folder: Path | None) -> Measured:
    """Do the singular vectors of a layer on pictures carry the data?

    Args:
        model: the trained network.
        layer: its first layer.
        data: pictures (N, 1, H, W) that it was trained on.
        features: the dominant features that are to be found, (2, 1, H, W).
        folder: where the weights of LPIPS may be; None: see ``data_folder``.

    Returns:
        ``cosine_1`` and ``cosine_2``, of the principal angles between the features and the two singular vectors that
        carry most of the data; ``carried``, their share of it; ``ssim``, and ``lpips_*`` if there are weights: the mean
        over all singular vectors and features. The vectors are kept as pictures, ordered by what they carry.
    """
    found = singular_vectors(model, layer, data=data, order="data")
    cosines = principal_angles(found.vectors[:BEST], features.flatten(1).double().cpu()).cos()
    assert found.carried is not None
    metrics = {
        "cosine_1": float(cosines[0]),
        "cosine_2": float(cosines[1]),
        "carried": float(found.carried[:BEST].sum()),
    }
    for name in ("alexnet", "squeezenet1_1"):
        lpips = _lpips(data_folder(folder) / f"lpips_{name}.npz")
        if lpips is not None:
            compared = similarity(found, features.cpu(), lpips=lpips)
            assert compared.lpips is not None
            metrics[f"lpips_{name}"] = compared.lpips.mean
    compared = similarity(found, features.cpu())
    assert compared.ssim is not None
    assert found.images is not None
    metrics["ssim"] = compared.ssim.mean
    kept = slice(0, 10)
    return Measured(
        metrics,
        arrays={
            "vectors": found.images[kept].float(),
            "values": found.values[kept].float(),
            "shares": found.carried[kept].float(),
            "features": features.float().cpu(),
        },
    )


@cache
def _lpips(path: Path) -> Lpips | None:
    return Lpips.load(path) if path.exists() else None


def rebuilt(model: nn.Module, x: Tensor) -> Tensor:
    """The input as the reverse pass from the output makes it, with batch statistics."""
    with eval_mode(model, "batch"):
        back = Racecar(model, x, mode="full").reconstruct(x)[0]
    assert back is not None  # mode "full" leads to the input, or refuses
    return back.reshape(x.shape)


def deployed(model: nn.Module, seen: Tensor, mode: str, options: Mapping[str, Any], batch: int = 1000) -> Racecar:
    """The reverse pass of a net as it is used in the end: in evaluation, its batch norms with statistics that the
    reverse data of samples ``seen`` (N, …) in training have. Of a copy: the model is not changed.

    Args:
        mode: of the reverse pass.
        options: further arguments of ``Racecar``.
        batch: samples at once; all batches count alike.
    """
    rr = Racecar(copy.deepcopy(model).eval(), seen[:2], mode=mode, **options)
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        calibrate(rr, seen.split(batch))
    return rr


@torch.no_grad()
def deployed_loss(model: nn.Module, seen: Tensor, x: Tensor, options: Mapping[str, Any], batch: int = 1000) -> float:
    """The relative reverse loss of a net with batch norm as it is used in the end. The mean over its layers and samples
    x (N, …)."""
    rr, total = deployed(model, seen, "full", options, batch), torch.zeros((), device=x.device)
    for part in x.split(batch):
        rr(part)
        total += torch.stack(list(rr.terms.values())).mean() * len(part)
    return float(total) / len(x)


def class_means(x: Tensor, y: Tensor) -> Tensor:
    """(classes, …)"""
    return torch.stack([x[y == label].mean(0) for label in y.unique()])
