"""Measures of whether a net can still learn: dead units, effective rank, norm of the weights, and the error with
which its layers are isometries, ‖AᵀA h − h‖² / ‖h‖², which the penalty ``linear`` makes small."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors, run
from racecar_lab.streams.penalties import linear_terms


def dead_units(units: list[Tensor]) -> Tensor:
    """Share of units that are 0 for all samples at all positions; shape ().

    Args:
        units: activations of every block, each (N, C, …).
    """
    dead = [(h.transpose(0, 1).flatten(1) == 0).all(1) for h in units]
    return torch.cat(dead).float().mean()


def effective_rank(features: Tensor) -> Tensor:
    """Effective rank of features (N, …) as a matrix with a row for each sample (Roy & Vetterli 2007); shape ().

    It is exp of the entropy of the singular values divided by their sum: from 1 to the matrix's smaller side; 0 where
    all features are 0, NaN where a feature is not finite.
    """
    finite = features.isfinite().all()  # svdvals of anything else is an error, for all nets of a stack
    values = torch.linalg.svdvals(torch.where(finite, features, 0.0).flatten(1))
    share = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    rank = torch.where(values.sum() > 0, torch.special.entr(share).sum().exp(), 0.0)
    return torch.where(finite, rank, torch.nan)


def weight_norm(net: StreamNet, parameters: Tensors) -> Tensor:
    """√Σ‖W‖² over the weights of all layers, the head among them, without biases; shape ()."""
    return torch.stack([parameters[f"{name}.weight"].square().sum() for name in net.layers]).sum().sqrt()


def metrics(net: StreamNet, parameters: Tensors, buffers: Tensors, x: Tensor) -> Tensors:
    """All measures of one net for samples x (N, *shape), each of shape (): "dead_units", "effective_rank" of the head's
    input, "weight_norm", and "linear_error", the mean of ‖AᵀA h − h‖² / ‖h‖² over all layers but the head."""
    _, watched, _ = run(net, parameters, buffers, x)
    return {
        "dead_units": dead_units(watched.units),
        "effective_rank": effective_rank(watched.inputs[-1]),
        "weight_norm": weight_norm(net, parameters),
        "linear_error": torch.stack(linear_terms(net, parameters, watched.inputs)).mean(),
    }
