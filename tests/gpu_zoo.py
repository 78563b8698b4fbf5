"""Twenty models of torchvision and timm, random weights, for a CUDA machine that has both packages.

`GPU_MODELS["torchvision:resnet50"]()` returns a model and its input, on the CPU, as in `networks.NETWORKS`; nothing is
imported before the call and nothing is downloaded. `TORCHVISION` and `TIMM` name the models of each package.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.networks import seeded

# name → the arguments it needs beside weights=None; the two Inceptions warn unless told how to start their weights
TORCHVISION: dict[str, dict[str, Any]] = {
    "alexnet": {},
    "vgg16_bn": {},
    "resnet50": {},
    "densenet121": {},
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False},
    "mobilenet_v3_small": {},
    "shufflenet_v2_x1_0": {},
    "squeezenet1_1": {},
    "convnext_tiny": {},
    "swin_t": {},
    "vit_b_16": {},
    "regnet_y_400mf": {},
}

TIMM = (
    "resnetv2_50",
    "mixer_s32_224",
    "deit_tiny_patch16_224",
    "convnextv2_atto",
    "efficientnetv2_rw_t",
    "nfnet_l0",
    "maxvit_rmlp_pico_rw_256",
)

SIZES = {"inception_v3": 299, "maxvit_rmlp_pico_rw_256": 256}  # all others: 224

BATCH = 4


def images(name: str) -> Tensor:
    size = SIZES.get(name, 224)
    return torch.rand(BATCH, 3, size, size)


def from_torchvision(name: str) -> tuple[nn.Module, Tensor]:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **TORCHVISION[name]), images(name)


def from_timm(name: str) -> tuple[nn.Module, Tensor]:
    import timm

    return timm.create_model(name, pretrained=False), images(name)


GPU_MODELS: dict[str, Callable[..., tuple[nn.Module, Tensor]]] = {
    **{f"torchvision:{name}": seeded(partial(from_torchvision, name)) for name in TORCHVISION},
    **{f"timm:{name}": seeded(partial(from_timm, name)) for name in TIMM},
}
