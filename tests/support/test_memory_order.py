"""With channels last the loss and gradients are the same, and no tensor on the way has another memory format."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from racecar_lab.networks.resnet import Bottleneck, ResNet
from racecar_lab.networks.vgg import vgg
from tests.losses import classic

NETS = {
    "vgg": lambda: vgg((8, "M", 16, "M"), hidden=()),
    "resnet": lambda: ResNet(Bottleneck, (1, 1), width=8, classes=5, large=False),
}


class Layouts(TorchDispatchMode):
    """Names of operations that leave pictures with the channels first; of sums, those that did not begin so, as the
    gradient of a mean over pixels does, which torch makes of nothing."""

    def __init__(self):
        super().__init__()
        self.found, self.begun = set(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if pictures(one) and not one.is_contiguous(memory_format=torch.channels_last):
                name = func.overloadpacket.__name__
                if name == "add" and all(map(pictures, args)) and args[0].is_contiguous():
                    self.begun += 1
                    continue
                self.found.add("bias" if name == "add" and not all(map(pictures, args)) else name)
        return out


def pictures(one):
    return isinstance(one, torch.Tensor) and one.dim() == 4 and min(one.shape[1:]) > 2


def gradients(rr, x):
    output, loss = rr(x)
    (output.square().mean() + loss).backward()
    return [loss.detach(), *(p.grad for p in rr.model.parameters())]


@pytest.mark.parametrize("fraction", [1.0, 0.25])
@pytest.mark.parametrize("name", NETS)
def test_the_way_back_keeps_the_layout(name, fraction):
    """Where convolutions and sums are; behind the classifier, which flattens pictures, they may lie otherwise."""
    torch.manual_seed(0)
    model = NETS[name]().to(memory_format=torch.channels_last)
    x = torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    rr = classic(model, x, fraction=fraction)
    with Layouts() as seen:
        gradients(rr, x)
    assert not seen.found & {"slice_backward", "mse_loss_backward", "add", "convolution", "convolution_backward"}
    assert name == "vgg" or "bias" not in seen.found
    assert seen.begun <= (name == "resnet")  # behind its mean over pixels, and nowhere else


def test_slices_of_many_nets():
    """Under torch.func, with channels last, as in eager PyTorch."""
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3)) for _ in range(2)]
    nets = [net.to(memory_format=torch.channels_last) for net in nets]
    x = torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    rr = classic(nets[0], x, fraction=0.5)
    names = [name for name, _ in rr.named_parameters()]
    stacked = {f"model.{name}": torch.stack([dict(net.named_parameters())[name] for net in nets]).detach()
               for name, _ in nets[0].named_parameters()}  # fmt: skip
    found = vmap(grad(lambda p: functional_call(rr, p, (x,))[1]))(stacked)
    for i, net in enumerate(nets):
        alone = classic(net, x, fraction=0.5)
        alone(x)[1].backward()
        for name in names:
            torch.testing.assert_close(found[name][i], dict(alone.named_parameters())[name].grad)
