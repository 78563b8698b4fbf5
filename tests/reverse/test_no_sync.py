"""A step makes no float64 tensor (MPS has none) and never waits for the device."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.by_hand import Net
from tests.losses import classic
from tests.networks import NETWORKS, call, soak_others
from tests.steps import task

WAITING = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2")
"""Operators whose result the processor must know before it goes on."""


class Witness(TorchDispatchMode):
    """Counts what must not happen, in the forward and in the backward pass."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in WAITING:
            self.seen[name] += 1
        if any(isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 for leaf in _pytree.tree_leaves(out)):
            self.seen[f"float64 from {name}"] += 1
        return out


def witness(run):
    with Witness() as seen:
        run()
    return seen.seen


def check(model, inputs, **settings):
    """Assert that a step has no waiting or float64 operation that a step of the model alone does not have."""
    alone = witness(lambda: task(call(model, inputs)).backward())
    rr = classic(model, inputs, **settings)

    def train():
        output, loss = call(rr, inputs)
        (task(output) + loss).backward()
        assert len(rr.terms) > 0

    for _ in range(2):
        assert witness(train) == alone
    for training in (True, False):
        rr.train(training)
        with torch.no_grad():
            assert witness(lambda: call(rr, inputs)) == witness(lambda: call(model, inputs))


@pytest.mark.parametrize("name", soak_others())
def test_every_network(name):
    check(*NETWORKS[name]())


MASK = torch.tensor([1.0, 0, 0, 1, 0, 0])
SETTINGS = {
    "full sum": {"mode": "full", "scale": "sum", "weight": 0.1},
    "layerwise mean": {"mode": "layerwise", "scale": "mean", "input_activation": "relu"},
    "slice": {"fraction": 0.5},
    "dict": {"weight": {"*": 0.3, "0": 0, "2": 1.5}},
    "features": {"mode": "input", "weight": {"*": 1, "0": MASK}},
    "features alone": {"weight": {"0": MASK}},
    "one tensor": {"weight": torch.tensor(0.5)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name):
    check(*NETWORKS["mlp"](), **SETTINGS[name])


@pytest.mark.parametrize("padding", ["reflect", "circular", "replicate"])
def test_padding(padding):
    convs = (nn.Conv2d(3, 4, 3, padding=1, padding_mode=padding), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2))
    check(nn.Sequential(*convs), torch.rand(4, 3, 8, 8))


def tokens(m, x, attention_mask):
    return m.b(torch.relu(m.norm(m.a(x).transpose(1, 2))).transpose(1, 2).flatten(0, 1))


@pytest.mark.parametrize("scale", ["relative", "mean"])
def test_masks(scale):
    mask = torch.arange(7) < torch.tensor([[3], [7], [1]])
    net = Net(tokens, a=nn.Linear(4, 6), norm=nn.BatchNorm1d(6), b=nn.Linear(6, 5))
    check(net, {"x": torch.rand(3, 7, 4), "attention_mask": mask}, scale=scale, fraction=0.67)


def test_the_witness_sees_what_it_should():
    x = torch.ones(2, requires_grad=True)
    assert witness(lambda: x.sum().item()) == {"_local_scalar_dense": 1}
    assert witness(lambda: (x * 2).double().sum().backward()).keys() >= {"float64 from _to_copy", "float64 from sum"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("name", ["vgg", "resnet_pad", "attention", "text", "unet_bilinear", "mlp_norm", "reused"])
@pytest.mark.parametrize("how", ["step", "slice", "schedule", "moved"])
def test_on_the_device(name, how):
    """`moved`: the Racecar was made on the CPU."""
    model, inputs = NETWORKS[name]()
    if how != "moved":
        model, inputs = model.cuda(), inputs.cuda()
    rr = classic(model, inputs, fraction=0.5 if how == "slice" else 1.0).cuda()
    inputs = inputs.cuda()
    for i, wait in enumerate(("default", "error", "error")):  # the first step may still set things up
        torch.cuda.set_sync_debug_mode(wait)
        try:
            output, loss = rr(inputs)
            (task(output) + loss).backward()
            if how == "schedule":
                rr.weight = 0.1 * i
        finally:
            torch.cuda.set_sync_debug_mode("default")
