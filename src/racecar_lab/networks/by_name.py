"""Networks by name, each with the shape of its usual batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from racecar_lab.networks.dense import dense
from racecar_lab.networks.resnet import cifar_resnet, resnet50
from racecar_lab.networks.vgg import NARROW, VGG7, VGG16, vgg, vgg19
from racecar_lab.networks.vit import ViT, vit_b16


@dataclass(frozen=True)
class Net:
    """A function that builds a network, and the shape of the network's usual input."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Shape of the input; the first dimension is the batch."""


NETS: dict[str, Net] = {
    "vgg19": Net(vgg19, (64, 3, 224, 224)),
    "resnet50": Net(resnet50, (256, 3, 224, 224)),
    "vit": Net(vit_b16, (128, 3, 224, 224)),
    "resnet110": Net(partial(cifar_resnet, 110), (512, 3, 32, 32)),
    "vgg16": Net(partial(vgg, VGG16), (128, 3, 32, 32)),
    "vgg7-narrow": Net(partial(vgg, NARROW), (64, 3, 32, 32)),
    "vgg7": Net(partial(vgg, VGG7), (32, 3, 32, 32)),
    "resnet20": Net(partial(cifar_resnet, 20), (32, 3, 32, 32)),
    "mlp": Net(partial(dense, [1024] * 6 + [10], nn.ReLU), (256, 1024)),
    "vit-tiny": Net(partial(ViT, 32, 4, 96, 6, 3, 10), (32, 3, 32, 32)),
}
"""All networks by name. vgg16 has 13 convolutions and is for 32×32 pictures."""

USUAL = {"cuda": ("vgg19", "resnet50", "vit", "resnet110"), "cpu": ("vgg7-narrow", "mlp", "resnet20")}
"""Names of the networks whose training steps are timed if none are named, by device."""


def open_net(name: str, batch: int = 0, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A network of this laboratory with random weights, and a random input for it.

    Args:
        name: one of NETS.
        batch: number of samples; 0: the usual one.
        seed: seed of weights and input.
    """
    net = NETS[name]
    torch.manual_seed(seed)
    return net.build(), torch.randn(batch or net.shape[0], *net.shape[1:])
