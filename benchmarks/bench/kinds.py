"""The steps that ours is compared with: the same loss written by hand, and SRIP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.bench import by_hand
from racecar import Racecar
from racecar.bench.kinds import PLANNED, Kind, Loss, with_own_code
from racecar.bench.workload import Workload
from racecar.orthogonality import srip
from racecar.orthogonality.weights import find


@dataclass(frozen=True)
class ByHand(Kind):
    """The default loss, written by hand for one architecture."""

    way: ClassVar[str] = "by hand"

    def applies_to(self, workload: Workload) -> bool:
        return by_hand.find(workload.model) is not None and len(workload.args) == 1 and not workload.kwargs

    def forward(self, workload: Workload) -> Callable[[], tuple[Tensor, Tensor]]:
        step = checked_step(workload, self.fraction)
        model, (x,), fraction = workload.model, workload.args, self.fraction
        return lambda: step(model, x, fraction)


@dataclass(frozen=True)
class Srip(Kind):
    """`racecar.orthogonality.srip` in the published form."""

    way: ClassVar[str] = "srip"

    def has_floor(self) -> bool:
        return False

    def loss(self, workload: Workload) -> Loss:
        plain, model = super().loss(workload), workload.model
        return with_own_code(lambda: plain() + our_srip(model), self.label)  # in float32: outside of autocast


@dataclass(frozen=True)
class PublishedSrip(Kind):
    """SRIP as its authors run it: layer after layer, never compiled or captured, beside a compiled plain step."""

    way: ClassVar[str] = "srip as published"
    capturable: ClassVar[bool] = False

    def has_floor(self) -> bool:
        return False

    def finish(self, loss: Loss, workload: Workload) -> Loss:
        return lambda: loss() + published_srip(workload.model)


def checked_step(workload: Workload, fraction: float) -> by_hand.LossFunction:
    """The step by hand, if it computes the loss that ours computes; an error if not."""
    step = by_hand.find(workload.model)
    assert step is not None
    (x,) = workload.first_samples(PLANNED).args
    buffers = {name: buffer.clone() for name, buffer in workload.model.named_buffers()}
    losses = []
    with torch.no_grad(), torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        for call in (Racecar(workload.model, x, fraction=fraction), lambda x: step(workload.model, x, fraction)):
            torch.manual_seed(0)
            losses.append(float(call(x)[1]))
            for name, buffer in workload.model.named_buffers():
                buffer.copy_(buffers[name])
    if abs(losses[0] - losses[1]) > 1e-2 * abs(losses[0]):  # TF32 and the order of sums, no more
        raise RuntimeError(f"by hand the loss is {losses[1]:.6g}, ours is {losses[0]:.6g}: their times mean nothing")
    return step


def our_srip(model: nn.Module) -> Tensor:
    return srip(model, squared=True, side="smaller")


def published_srip(model: nn.Module, draw: Callable[..., Tensor] = torch.rand) -> Tensor:
    """SRIP as Bansal et al. published it for Wide ResNets: σ² of each layer's smaller Gram matrix.

    With G = W Wᵀ − I and a random u: v = Gᵀu, u = Gv, both of length 1, and σ = uᵀGv.
    """
    total: Tensor | float = 0.0
    for layer in find(model, None):
        w = layer.weight.flatten(1)
        if w.shape[0] > w.shape[1]:
            w = w.t()
        gram = w @ w.t() - torch.eye(len(w), device=w.device, dtype=w.dtype)
        u = F.normalize(draw(len(w), device=w.device, dtype=w.dtype), dim=0)
        v = F.normalize(gram.t() @ u, dim=0)
        u = F.normalize(gram @ v, dim=0)
        total = total + (u @ (gram @ v)).square()
    assert isinstance(total, Tensor)
    return total
