"""The hand-written reverse passes are the engine's loss: value and gradients, in float64."""

import pytest
import torch
from torch import nn

from benchmarks.bench import by_hand
from racecar import Racecar
from racecar_lab.networks.dense import dense
from racecar_lab.networks.resnet import Bottleneck, ResNet, cifar_resnet
from racecar_lab.networks.vgg import vgg
from racecar_lab.networks.vit import ViT
from tests.pairwise import pairwise

NETS = {
    "mlp": lambda: (dense([12, 9, 7, 5], nn.ReLU), (8, 3, 4)),
    "vgg": lambda: (vgg((4, 4, "M", 6, "M"), size=8, hidden=(7, 6)), (8, 3, 8, 8)),
    "vgg, one pixel": lambda: (vgg((4, "M", 6, "M"), size=4), (8, 3, 4, 4)),
    "vgg without norm": lambda: (vgg((4, "M", 6), size=8, norm=False), (8, 3, 8, 8)),
    "vgg, odd size": lambda: (vgg((4, "M", 6, "M"), size=11), (8, 3, 11, 11)),
    "bottlenecks": lambda: (ResNet(Bottleneck, (1, 2), 3, 5, large=True), (8, 3, 22, 22)),
    "cifar resnet": lambda: (cifar_resnet(14, width=3), (8, 3, 8, 8)),
    "vit": lambda: (ViT(16, 8, 8, 2, 2, 5), (8, 3, 16, 16)),
}


def evaluate(model: nn.Module, step):
    """Output, loss and gradients of a call, from the same random numbers and the same running statistics."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    torch.manual_seed(1)
    model.zero_grad(set_to_none=True)
    output, loss = step()
    (output.square().sum() + loss).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    after = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
    return output.detach(), loss.detach(), gradients, after


@pytest.mark.parametrize("name, training, fraction", pairwise([*NETS], [True, False], [1.0, 0.25, 0.125]))
def test_same_loss_and_gradients(name, training, fraction):
    torch.manual_seed(0)
    model, shape = NETS[name]()
    model = model.double().train(training)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # what a fresh net has would hide a forgotten scale or shift
            for tensor in (module.weight.data, module.bias.data, module.running_mean, module.running_var):
                tensor.uniform_(0.5, 1.5)
    x = torch.rand(shape, dtype=torch.float64)
    rr, step = Racecar(model, x, fraction=fraction), by_hand.find(model)
    ours = evaluate(model, lambda: rr(x))
    theirs = evaluate(model, lambda: step(model, x, fraction))
    assert len(rr.terms) == sum(isinstance(m, nn.Linear | nn.Conv2d) for m in model.modules())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_nobody_wrote_one():
    assert by_hand.find(nn.Sequential(nn.Linear(3, 3), nn.Tanh())) is None
    assert by_hand.find(nn.Linear(3, 3)) is None
