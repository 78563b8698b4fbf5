"""The plain-torch networks have the shapes of the well-known ones."""

import pytest
import torch
from torch import nn

from racecar_lab.networks.resnet import ResNet, cifar_resnet, resnet50
from racecar_lab.networks.vgg import VGG7, VGG16, vgg, vgg19
from racecar_lab.networks.vit import ViT, vit_b16


@pytest.mark.parametrize(
    "build, parameters, tensors",
    [  # counts as torchvision and timm print them, and some of their tensors
        (vgg19, 143_678_248, {"features.49.weight": (512, 512, 3, 3), "classifier.6.weight": (1000, 4096)}),
        (
            resnet50,
            25_557_032,
            {"conv1.weight": (64, 3, 7, 7), "layer4.0.downsample.0.weight": (2048, 1024, 1, 1), "fc.bias": (1000,)},
        ),
        (
            vit_b16,
            86_567_656,
            {"patch_embed.proj.weight": (768, 3, 16, 16), "pos_embed": (1, 197, 768), "cls_token": (1, 1, 768)}
            | {"blocks.11.attn.qkv.weight": (2304, 768), "blocks.0.mlp.fc1.bias": (3072,), "norm.weight": (768,)},
        ),
        (cifar_resnet, 1_730_714, {"layer3.17.conv2.weight": (64, 64, 3, 3)}),
    ],
)
def test_shapes(build, parameters, tensors):
    with torch.device("meta"):
        model = build()
        size = 32 if build is cifar_resnet else 224
        assert model(torch.empty(2, 3, size, size)).shape == (2, model(torch.empty(1, 3, size, size)).shape[1])
    assert sum(p.numel() for p in model.parameters()) == parameters
    state = model.state_dict()
    assert {name: tuple(state[name].shape) for name in tensors} == tensors


@pytest.mark.parametrize("layout, convs, features", [(VGG7, 7, 256 * 16), (VGG16, 13, 512)])
def test_small_vggs(layout, convs, features):
    with torch.device("meta"):
        model = vgg(layout)
    assert sum(isinstance(m, nn.Conv2d) for m in model.modules()) == convs
    assert model.classifier[0].in_features == features


def test_depth_of_a_cifar_resnet():
    convs = [m for m in cifar_resnet(20, width=2).modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convs) == 19  # and the linear layer
    with pytest.raises(ValueError, match=r"6n \+ 2 layers .* not 21"):
        cifar_resnet(21)


def test_refused():
    with pytest.raises(ValueError, match="larger size or fewer 'M'"):
        vgg(VGG16, size=16)
    with pytest.raises(ValueError, match="multiple of the patch"):
        ViT(30, 16, 8, 1, 2, 5)


def test_the_class_token_alone_is_normalised():
    """The norm before the selection, as others write it, gives the same."""
    torch.manual_seed(0)
    model, x = ViT(16, 8, 8, 1, 2, 5), torch.rand(2, 3, 16, 16)
    expected = model.head(model.norm(model.blocks(model.embed(x)))[:, 0])
    torch.testing.assert_close(model(x), expected)


def test_batch_norm_after_every_convolution():
    for model in (cifar_resnet(8, width=2), resnet50(width=2)):
        assert isinstance(model, ResNet)
        kinds = [type(m) for m in model.modules()]
        assert kinds.count(nn.BatchNorm2d) == kinds.count(nn.Conv2d)
