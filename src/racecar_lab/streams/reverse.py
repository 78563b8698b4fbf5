"""The paper's own reverse loss for one net of a stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from racecar import Racecar
from racecar_lab.streams.nets import StreamNet, Tensors


def planned(net: StreamNet, shape: Sequence[int], mode: str) -> Racecar:
    """A Racecar with the paper's loss, Σ‖d − d'‖² over all layers but the head, gradients through d and d'.

    It is planned here, once: inside ``torch.func.vmap`` nothing can be planned.
    """
    parameter = net.head.weight
    example = torch.zeros(2, *shape, dtype=parameter.dtype, device=parameter.device)
    weight = {"*": 1.0, "head": 0.0}
    return Racecar(net, example, mode, weight, scale="sum", gradient="both", reduction="sum")


def output_and_loss(racecar: Racecar, parameters: Tensors, buffers: Tensors, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (N, classes) and the loss, shape (), of one net."""
    given = {f"model.{name}": value for name, value in {**parameters, **buffers}.items()}
    return functional_call(racecar, given, (x,))
