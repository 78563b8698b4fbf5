"""Running statistics of several batch norms in shared tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from racecar.plan.norms import Norm
from racecar.rules.context import BatchStatistics
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform, variances


class StatisticsBlock(nn.Module):
    """Running mean, variance and number of updates at several places, one after the other in flat tensors.

    Flat tensors are updated by a few small kernels, instead of a few for each place.

    Args:
        norms: key of each place → the batch norm there; all on one device, with one dtype.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    momentum: Tensor
    owner: Tensor
    """For each element of ``mean`` and ``var`` the index of its place."""

    def __init__(self, norms: Mapping[str, Norm]) -> None:
        super().__init__()
        self.keys, self.sizes = tuple(norms), [norm.channels for norm in norms.values()]
        self.momenta = [norm.momentum for norm in norms.values()]
        self.starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        first, total = next(iter(norms.values())), sum(self.sizes)
        with torch.inference_mode(False):
            buffers = {
                "mean": torch.zeros(total, dtype=first.dtype),
                "var": torch.ones(total, dtype=first.dtype),
                "count": torch.zeros(len(norms), dtype=torch.int64),
                "momentum": torch.tensor(self.momenta, dtype=first.dtype),
                "owner": torch.arange(len(norms)).repeat_interleave(torch.tensor(self.sizes)),
            }
            for name, tensor in buffers.items():
                self.register_buffer(name, tensor.to(first.device), persistent=False)

    def place(self, i: int) -> tuple[Tensor, Tensor]:
        """Mean and variance of place i, (C,) each, as views."""
        start, size = self.starts[i], self.sizes[i]
        return self.mean.narrow(0, start, size), self.var.narrow(0, start, size)

    def updated(self, batch: Mapping[str, BatchStatistics]) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, variance and count after one more batch, as new tensors for :meth:`assign`.

        Args:
            batch: key → statistics of the batch; places that are not in it stay as they are.
        """
        means, variances = [], []
        keys = [key for key in self.keys if key in batch]
        batch_variances = dict(zip(keys, unbiased([batch[key] for key in keys]), strict=True))
        for i, key in enumerate(self.keys):
            mean, var = (batch[key].mean.flatten(), batch_variances[key].flatten()) if key in batch else self.place(i)
            means.append(mean)
            variances.append(var)
        count = self.count + self._count_steps(batch)
        factor = torch.maximum(self.momentum, count.clamp(min=1).to(self.momentum.dtype).reciprocal())[self.owner]
        dtype = self.mean.dtype
        return (
            self.mean.lerp(torch.cat(means).to(dtype), factor),
            self.var.lerp(torch.cat(variances).to(dtype), factor),
            count,
        )

    def _count_steps(self, batch: Mapping[str, BatchStatistics]) -> Tensor | int:
        """What a batch adds to the counts: 1 at each place that is in it."""
        if all(key in batch for key in self.keys):
            return 1
        runs = groupby(key in batch for key in self.keys)
        return torch.cat([self.count.new_full((len(list(run)),), int(present)) for present, run in runs])

    def assign(self, new: tuple[Tensor, Tensor, Tensor]) -> None:
        """Copy new values into mean, variance and count, whose memory a recorded CUDA graph uses."""
        for buffer, values in zip((self.mean, self.var, self.count), new, strict=True):
            buffer.copy_(values)


def unbiased(batches: Sequence[BatchStatistics]) -> list[Tensor]:
    """Σ (x − mean)² / (n − 1) of each channel, from 1/σ."""
    if not batches:
        return []
    eps, sizes = [batch.eps for batch in batches], [batch.size for batch in batches]
    factors = [n / (n - 1).clamp(min=1) if isinstance(n, Tensor) else n / (n - 1) for n in sizes]
    inverse = [batch.inverse for batch in batches]
    if compiling() or in_transform(inverse[0]) or any(isinstance(factor, Tensor) for factor in factors):
        return [
            (x.square().reciprocal() - e).clamp(min=0) * factor
            for x, e, factor in zip(inverse, eps, factors, strict=True)
        ]
    return variances(inverse, eps, factors)
