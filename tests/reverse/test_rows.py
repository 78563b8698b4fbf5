"""Eager slices: gradients are padded to the whole batch only when backward reaches their layer, and no whole tensor is
kept."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from racecar_lab.networks.resnet import Basic, ResNet
from tests.losses import classic

aten = torch.ops.aten
N, T = 8, 3
PADS = (aten.slice_backward.default, aten.constant_pad_nd.default)
PRODUCTS = (aten.mm.default, aten.convolution_backward.default)


class Inner(nn.Module):
    """Tokens before samples, in one dimension: (N, T, C) → (T·N, C)."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        x = x.transpose(0, 1).flatten(0, 1)
        for layer in self.layers:
            x = layer(x).relu()
        return x


def convolutions():
    return nn.Sequential(
        *(part for _ in range(4) for part in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()))
    )


def perceptron():
    return nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(6, 6), nn.ReLU())))


NETS = {
    "linear": (perceptron, (N, 6), N),
    "convolutions": (convolutions, (N, 3, 5, 5), N),
    "channels last": (lambda: convolutions().to(memory_format=torch.channels_last), (N, 3, 5, 5), N),
    "an inner batch": (Inner, (N, T, 6), T * N),
}


class Order(TorchDispatchMode):
    """Writes down what pads a gradient to all samples, and products of all samples."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.seen = rows, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in PADS and self.rows in (out.shape[0], out.shape[:2].numel()):
            self.seen.append("pad")
        elif func in PRODUCTS and any(isinstance(one, torch.Tensor) and self.rows in one.shape[:2] for one in args):
            self.seen.append("product")
        return out


@pytest.mark.parametrize("name", NETS)
def test_one_gradient_waits_at_most(name):
    torch.manual_seed(0)
    make, shape, rows = NETS[name]
    model, x = make(), torch.randn(shape)
    if name == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    output, loss = classic(model, x, fraction=0.5)(x)
    with Order(rows) as order:
        (output.square().sum() + loss).backward()
    assert order.seen.count("pad") >= 4
    words = " ".join(order.seen)
    assert "pad pad pad" not in words  # two where a reverse pass starts at a layer that is compared, too
    assert words.count("pad pad") <= 1, words


def test_what_the_model_does_not_learn_from_needs_no_turn():
    """An input without gradient, and a layer whose input has none."""
    x = torch.randn(4, 6)
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    model[0].requires_grad_(False)
    rr = classic(model, x, fraction=0.5)
    rr(x)[1].backward()
    assert model[2].weight.grad.any()
    given = x.clone().requires_grad_()
    rr(given)[1].backward()
    assert given.grad is not None
    assert not given.grad[2:].any()


def kept_bytes(call):
    """Memory that a pass keeps for backward, each storage once."""
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive = call()
    del alive
    return sum(found.values())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_slice_keeps_no_whole_tensor_that_the_model_would_let_go(layout):
    """At a join a reverse pass starts from a batch norm's output, which the sum does not need any more."""
    torch.manual_seed(0)
    model = ResNet(Basic, (2, 2), width=8, classes=5, large=False).to(memory_format=layout)
    x = torch.randn(64, 3, 16, 16).contiguous(memory_format=layout)
    plain = kept_bytes(lambda: model(x))
    rr = classic(model, x, fraction=1 / 64)
    assert kept_bytes(lambda: rr(x)) < 1.15 * plain
