"""The error of the reverse pass for each sample of a batch, instead of one number for the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.racecar import Racecar
from racecar.reverse.eager_step import rebuild, watch_all
from racecar.reverse.norm_statistics import PassStatistics
from racecar.reverse.values import ForwardValues
from racecar.support.eval_mode import eval_mode
from racecar.watch.dry_run import untouched


@torch.no_grad()
def sample_errors(rr: Racecar, x: Tensor, batch: int = 500) -> dict[str, Tensor]:
    """The relative error of the reverse pass, Σ(d_m − d'_m)² / Σd_m², of each sample at each constrained layer.

        errors = sample_errors(rr, x)
        strange = torch.stack(list(errors.values())).mean(0)  # (N,)

    A sample's error does not depend on the other samples: batch norms use their running statistics in the forward pass
    and ``rr.reverse_statistics`` in the reverse pass.

    Args:
        rr: the Racecar whose reverse pass is run, in evaluation mode, with its mode, weights and input activation; it
            is not changed.
        x: (N, …), the input of its model.
        batch: how many samples are run at once.

    Returns:
        Layer name → (N,) in float64, in the order of the layers; 0 where d_m is 0.
    """
    errors: dict[str, list[Tensor]] = {}
    with eval_mode(rr), untouched(rr.model):
        for part in x.split(batch):
            _, prepared, values = watch_all(rr._engine, (part,), {})
            rebuilt = rebuild(prepared, values, PassStatistics(rr.reverse_statistics))
            for term in prepared.terms.values():
                layer = term.layer
                d = _by_sample(values, layer.d, values.tensor(layer.d), len(part), layer.name)
                reverse = _by_sample(values, layer.d, rebuilt[layer.index], len(part), layer.name)
                errors.setdefault(layer.name, []).append(_relative(d, reverse))
    return {name: torch.cat(parts) for name, parts in errors.items()}


def _relative(d: Tensor, reverse: Tensor) -> Tensor:
    """Σ(d − d')² / Σd² of each sample: (N, …), (N, …) → (N,); 0 where d is 0."""
    d, reverse = d.flatten(1).double(), reverse.flatten(1).double()
    error, size = (d - reverse).square().sum(1), d.square().sum(1)
    return torch.where(size > 0, error / torch.where(size > 0, size, 1), 0)


def _by_sample(values: ForwardValues, value: int, tensor: Tensor, size: int, layer: str) -> Tensor:
    """A value's tensor with its batch dimension, which may be merged with others, moved to the front: (N, …)."""
    batch = values.batch(value)
    if batch is None:
        raise ValueError(
            f"the samples cannot be told apart in the input of layer {layer!r}: its batch dimension is lost"
        )
    return tensor.unflatten(batch.dim, (batch.outer, size, -1)).movedim(batch.dim + 1, 0)
