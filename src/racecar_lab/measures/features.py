"""Features of the first layer, as in the paper: its singular vectors compared with the data; and the reverse pass in
evaluation mode."""

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
from racecar_lab.stage import Measured

BEST = 2
"""Number of dominant features in the data sets peaks and digits, and of singular vectors that are compared with
them."""


def first_layer(model: nn.Module, layer: str, data: Tensor, features: Tensor, folder: Path | None) -> Measured:
    """Compare the singular vectors of a layer on pictures with the dominant features of the data.

    Args:
        model: the trained network.
        layer: its first layer.
        data: pictures (N, 1, H, W) that it was trained on.
        features: the dominant features, (2, 1, H, W).
        folder: the data folder, which may have the weights of LPIPS; None: see ``data_folder``.

    Returns:
        Metrics: ``cosine_1`` and ``cosine_2`` of the principal angles between the features and the two singular vectors
        that carry most of the data; ``carried``, the share that these two carry; means over all pairs of a singular
        vector and a feature of ``ssim`` and, if there are weights, ``lpips_*``. Arrays: the first ten singular vectors
        as pictures, in the order of the share that they carry.
    """
    singular = singular_vectors(model, layer, data=data, order="data")
    cosines = principal_angles(singular.vectors[:BEST], features.flatten(1).double().cpu()).cos()
    assert singular.carried is not None
    metrics = {
        "cosine_1": float(cosines[0]),
        "cosine_2": float(cosines[1]),
        "carried": float(singular.carried[:BEST].sum()),
    }
    for name in ("alexnet", "squeezenet1_1"):
        lpips = _lpips(data_folder(folder) / f"lpips_{name}.npz")
        if lpips is not None:
            compared = similarity(singular, features.cpu(), lpips=lpips)
            assert compared.lpips is not None
            metrics[f"lpips_{name}"] = compared.lpips.mean
    compared = similarity(singular, features.cpu())
    assert compared.ssim is not None
    assert singular.images is not None
    metrics["ssim"] = compared.ssim.mean
    first = slice(0, 10)
    return Measured(
        metrics,
        arrays={
            "vectors": singular.images[first].float(),
            "values": singular.values[first].float(),
            "shares": singular.carried[first].float(),
            "features": features.float().cpu(),
        },
    )


@cache
def _lpips(path: Path) -> Lpips | None:
    return Lpips.load(path) if path.exists() else None


def rebuilt(model: nn.Module, x: Tensor) -> Tensor:
    """The reconstruction d'_1 of the input x (N, …) by the full reverse pass, with batch statistics."""
    with eval_mode(model, "batch"):
        back = Racecar(model, x, mode="full").reconstruct(x)[0]
    assert back is not None  # mode "full" leads to the input, or refuses
    return back.reshape(x.shape)


def deployed(model: nn.Module, seen: Tensor, mode: str, options: Mapping[str, Any], batch: int = 1000) -> Racecar:
    """A copy of a trained net in evaluation mode, wrapped in ``Racecar`` for its reverse pass. There its batch norms
    use running statistics of the reverse data, computed from training samples.

    Args:
        seen: the training samples (N, …).
        mode: mode of ``Racecar``.
        options: further arguments of ``Racecar``.
        batch: number of samples from which statistics are computed at once; all batches count the same.
    """
    rr = Racecar(copy.deepcopy(model).eval(), seen[:2], mode=mode, **options)
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        calibrate(rr, seen.split(batch))
    return rr


@torch.no_grad()
def deployed_loss(model: nn.Module, seen: Tensor, x: Tensor, options: Mapping[str, Any], batch: int = 1000) -> float:
    """The relative reverse loss of a trained net in evaluation mode (see ``deployed``), the mean over its layers and
    the samples x (N, …)."""
    rr, total = deployed(model, seen, "full", options, batch), torch.zeros((), device=x.device)
    for part in x.split(batch):
        rr(part)
        total += torch.stack(list(rr.terms.values())).mean() * len(part)
    return float(total) / len(x)


def class_means(x: Tensor, y: Tensor) -> Tensor:
    """The mean of each class's samples x (N, …) with labels y (N,): (classes, …)."""
    return torch.stack([x[y == label].mean(0) for label in y.unique()])
