"""Measures of whether a net can still learn: dead units, effective rank, length of the weights, error of ``linear``."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors, run
from racecar_lab.streams.penalties import linear_terms


def dead_units(units: list[Tensor]) -> Tensor:
    """Share of all blocks' units, (N, C, …) each, that are 0 for all samples at all positions; shape ()."""
    dead = [(one.transpose(0, 1).flatten(1) == 0).all(1) for one in units]
    return torch.cat(dead).float().mean()


def effective_rank(features: Tensor) -> Tensor:
    """exp of the entropy of the singular values, divided by their sum, of features (N, …) as a matrix with a row for
    each sample (Roy & Vetterli 2007); from 1 to the smaller side, 0 where all are 0, NaN where one is not finite; shape
    ()."""
    finite = features.isfinite().all()  # of anything else the singular values are an error, for all nets of a stack
    values = torch.linalg.svdvals(torch.where(finite, features, 0.0).flatten(1))
    share = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    rank = torch.where(values.sum() > 0, torch.special.entr(share).sum().exp(), 0.0)
    return torch.where(finite, rank, torch.nan)


def weight_norm(net: StreamNet, parameters: Tensors) -> Tensor:
    """√Σ‖W‖² over all layers, the head too, without biases; shape ()."""
    return torch.stack([parameters[f"{name}.weight"].square().sum() for name in net.layers]).sum().sqrt()


def metrics(net: StreamNet, parameters: Tensors, buffers: Tensors, x: Tensor) -> Tensors:
    """All of them for one net and samples x (N, *shape): "dead_units", "effective_rank" of what the head is given,
    "weight_norm", and "linear_error", the mean of ‖AᵀA h − h‖² / ‖h‖² over all layers but the head."""
    _, watched, _ = run(net, parameters, buffers, x)
    return {
        "dead_units": dead_units(watched.units),
        "effective_rank": effective_rank(watched.inputs[-1]),
        "weight_norm": weight_norm(net, parameters),
        "linear_error": torch.stack(linear_terms(net, parameters, watched.inputs)).mean(),
    }
