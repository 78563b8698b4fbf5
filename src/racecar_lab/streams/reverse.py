"""The paper's reverse loss for one net of a stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from racecar import Racecar
from racecar_lab.streams.nets import StreamNet, Tensors


def make_racecar(net: StreamNet, shape: Sequence[int], mode: str) -> Racecar:
    """A ``Racecar`` of the net with the paper's loss: Σ‖d − d'‖² over all layers but the head, with gradients through d
    and d'.

    Its plan is made here, before training, because no plan can be made inside ``torch.func.vmap``.
    """
    parameter = net.head.weight
    example = torch.zeros(2, *shape, dtype=parameter.dtype, device=parameter.device)
    weight = {"*": 1.0, "head": 0.0}
    return Racecar(net, example, mode, weight, scale="sum", gradient="both", reduction="sum")


def output_and_loss(racecar: Racecar, parameters: Tensors, buffers: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (N, classes) and reverse loss, shape (), of one net for samples x (N, *shape)."""
    tensors = {f"model.{name}": value for name, value in {**parameters, **buffers}.items()}
    return functional_call(racecar, tensors, (x,))
