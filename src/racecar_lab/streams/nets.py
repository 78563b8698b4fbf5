"""The networks that are trained on streams: fully connected or convolutional, with ReLU or CReLU, maybe with a norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from racecar_lab.streams.convolution import convolve
from racecar_lab.streams.draws import uniform

Activation = Literal["relu", "crelu"]
Norm = Literal["none", "layer", "batch"]
Tensors = dict[str, Tensor]
"""Tensors by name: parameters or buffers of one net, or of a stack, whose first dimension is that of the nets."""


@dataclass(frozen=True)
class Design:
    """The layers of a net before its linear head, from the input on."""

    convolutions: tuple[tuple[int, int, int], ...] = ()
    """Channels, kernel size and padding of each convolution; an activation and 2 × 2 max pooling follow each."""
    hidden: tuple[int, ...] = ()
    """Widths of the fully connected layers, which follow the convolutions."""

    def scaled(self, share: float) -> Design:
        """The design with all widths multiplied by ``share`` and rounded down, but at least 1."""
        convolutions = tuple((max(1, int(share * c)), kernel, padding) for c, kernel, padding in self.convolutions)
        return Design(convolutions, tuple(max(1, int(share * width)) for width in self.hidden))


DESIGNS = {
    "mlp2": Design(hidden=(100,) * 2),
    "mlp3": Design(hidden=(100,) * 3),
    "mlp6": Design(hidden=(100,) * 6),
    "kumar": Design(((16, 5, 0), (16, 5, 0)), (100, 100)),
    "conv3": Design(((32, 3, 1), (64, 3, 1), (128, 3, 1))),
}
"""Designs by name; "kumar" is the convolutional net of Kumar et al. (2023)."""


class CReLU(nn.Module):
    """Concatenated ReLU, [relu(z), relu(−z)]: (N, C, …) → (N, 2C, …) (Shang et al. 2016)."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat([z, -z], 1).relu()


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of (N, C) or (N, C, H, W). Positions are one axis to it, because vmap refuses ``nn.BatchNorm2d`` on a
    GPU where convolutions leave their channels last."""

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z) if z.dim() == 2 else super().forward(z.flatten(2)).view(z.shape)


class StreamBlock(nn.Module):
    """One layer of a net: a linear layer or a convolution, with its norm, activation and pooling."""

    def __init__(self, op: nn.Linear | nn.Conv2d, activation: Activation, norm: Norm) -> None:
        super().__init__()
        self.op = op
        width, convolution = op.weight.shape[0], isinstance(op, nn.Conv2d)
        self.norm: nn.Module = nn.Identity()
        if norm == "layer":
            self.norm = nn.GroupNorm(1, width) if convolution else nn.LayerNorm(width)
        elif norm == "batch":
            self.norm = BatchNorm(width)
        self.activation = CReLU() if activation == "crelu" else nn.ReLU()
        self.pool = nn.MaxPool2d(2) if convolution else nn.Identity()

    def weighted(self, x: Tensor) -> Tensor:
        """The output of the block's linear layer or convolution for x; the latter by :func:`convolve`, which is faster
        in a stack of nets."""
        if isinstance(self.op, nn.Linear):
            return self.op(x)
        assert self.op.bias is not None
        return convolve(x, self.op.weight, padding_of(self.op)) + self.op.bias[:, None, None]


def padding_of(op: nn.Conv2d) -> int:
    """The padding of a convolution, in pixels, which is the same on all sides."""
    padding = op.padding[0]
    assert isinstance(padding, int)
    return padding


class Watched(NamedTuple):
    """Tensors of each layer that are recorded in a forward pass."""

    inputs: list[Tensor]
    """Input of every linear layer and convolution, (N, …), in the order of ``StreamNet.layers``; the last is that of
    the head."""
    units: list[Tensor]
    """Activations of every block before pooling, (N, C, …)."""


class StreamNet(nn.Module):
    """A net of blocks and a linear head, (N, *shape) → (N, classes).

    It is a template for all nets of a stack: their parameters are drawn by :meth:`fresh` and passed to it by
    ``torch.func.functional_call``.
    """

    def __init__(
        self, design: Design, shape: Sequence[int], classes: int, activation: Activation = "relu", norm: Norm = "none"
    ) -> None:
        super().__init__()
        times = 2 if activation == "crelu" else 1
        channels, side = (shape[0], shape[-1]) if len(shape) > 1 else (math.prod(shape), 1)
        ops: list[nn.Linear | nn.Conv2d] = []
        for width, kernel, padding in design.convolutions:
            ops.append(nn.Conv2d(channels, width, kernel, padding=padding))
            channels, side = width * times, (side + 2 * padding - kernel + 1) // 2
        features = channels * side * side if design.convolutions else math.prod(shape)
        for width in design.hidden:
            ops.append(nn.Linear(features, width))
            features = width * times
        self.blocks = nn.ModuleList(StreamBlock(op, activation, norm) for op in ops)
        self.head = nn.Linear(features, classes)
        self.layers = (*(f"blocks.{i}.op" for i in range(len(ops))), "head")
        """Names of the linear layers and convolutions, from input to output; the last is the head."""
        self._slots = {name: i for i, (name, _) in enumerate(self.named_parameters())}

    def forward(self, x: Tensor, watched: Watched | None = None) -> Tensor:
        for block in self.blocks:
            assert isinstance(block, StreamBlock)
            if isinstance(block.op, nn.Linear):
                x = x.flatten(1)
            product = block.op(x) if watched is None else block.weighted(x)  # Racecar knows a module's convolution
            units = block.activation(block.norm(product))
            if watched is not None:
                watched.inputs.append(x)
                watched.units.append(units)
            x = block.pool(units)
        x = x.flatten(1)
        if watched is not None:
            watched.inputs.append(x)
        return self.head(x)

    def fresh(self, key: Tensor, number: Tensor | int, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """A random initial value for a parameter, as PyTorch initialises it: uniform within ±1/√fan_in; 1 and 0 for the
        scale and shift of a norm.

        Args:
            key: the net's random key.
            number: the number of the first parameter's draw; each parameter has its own.
            name: the parameter's name.
            shape: the shape of the result, such as a single row of the weight; None: the parameter's shape.
        """
        parameter = self.get_parameter(name)
        shape = parameter.shape if shape is None else shape
        layer, _, kind = name.rpartition(".")
        if layer not in self.layers:
            return torch.full(tuple(shape), float(kind == "weight"), dtype=parameter.dtype, device=key.device)
        fan_in = self.get_parameter(f"{layer}.weight")[0].numel()
        return uniform(key, number + self._slots[name], shape, parameter.dtype) / math.sqrt(fan_in)

    def is_norm(self, name: str) -> bool:
        """True if the parameter of this name is the scale or the shift of a norm."""
        return name.rpartition(".")[0] not in self.layers


def stream_net(
    design: Design, shape: Sequence[int], classes: int, activation: Activation = "relu", norm: Norm = "none"
) -> StreamNet:
    """A net of the given design for samples of the given shape.

    With CReLU all widths are reduced by the same factor, so that the net has at most as many parameters as with ReLU:
    Kumar et al. compare them in this way.
    """
    if activation == "relu":
        return StreamNet(design, shape, classes, activation, norm)

    def size(net: nn.Module) -> int:
        return sum(parameter.numel() for parameter in net.parameters())

    with torch.device("meta"):
        most = size(StreamNet(design, shape, classes, "relu", norm))
        smaller = (design.scaled(percent / 100) for percent in range(100, 0, -1))
        fitting = (narrow for narrow in smaller if size(StreamNet(narrow, shape, classes, "crelu", norm)) <= most)
        design = next(fitting, design)
    return StreamNet(design, shape, classes, activation, norm)


def run(net: StreamNet, parameters: Tensors, buffers: Tensors, x: Tensor) -> tuple[Tensor, Watched, Tensors]:
    """One net's logits (N, classes), the tensors recorded in its forward pass, and its buffers after it."""
    watched = Watched([], [])
    after = {name: buffer.clone() for name, buffer in buffers.items()}  # batch norm changes them in place
    logits = functional_call(net, {**parameters, **after}, (x, watched))
    return logits, watched, after
