"""The reverse pass written by hand for two nets: what the engine is timed against.

Full mode, scale "relative", λ = 1 on every layer: the loss that ``Racecar(model, x, mode="full")`` derives.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def relative(d: Tensor, reverse: Tensor) -> Tensor:
    return (d - reverse).square().sum() / d.detach().square().sum()


def renormalise(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch norm on the reverse data; the running statistics stay as they are."""
    return F.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)


def vgg_step(model: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    """(output, loss) of ``tests.networks.vgg`` with batch norm. x: (N, 3, 32, 32)."""
    convs, norms, pooled = [], [], []
    h, ds = x, [x]
    for part in model.features:
        h = part(h)
        if isinstance(part, nn.Conv2d):
            convs.append(part)
            pooled.append(False)
        elif isinstance(part, nn.BatchNorm2d):
            norms.append(part)
        elif isinstance(part, nn.ReLU):
            ds.append(h)
        else:
            pooled[-1] = True
    output = model.classifier(h.flatten(1))

    back = ((output - model.classifier.bias) @ model.classifier.weight).view_as(h)
    loss = torch.zeros((), device=x.device)
    for m in range(len(convs) - 1, -1, -1):
        back = F.relu(renormalise(norms[m], back))
        if pooled[m]:
            back = F.interpolate(back, scale_factor=2, mode="nearest")
        loss = loss + relative(ds[m + 1], back)
        conv = convs[m]
        back = F.conv_transpose2d(back - conv.bias.view(-1, 1, 1), conv.weight, padding=1)
    return output, loss + relative(x, back)


def mlp_step(model: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    """(output, loss) of ``tests.networks.mlp`` with ReLU between its layers. x: (N, in)."""
    linears = [part for part in model if isinstance(part, nn.Linear)]
    h, ds = x, [x]
    for linear in linears[:-1]:
        h = F.relu(linear(h))
        ds.append(h)
    output = linears[-1](h)

    back, loss = output, torch.zeros((), device=x.device)
    for m in range(len(linears) - 1, -1, -1):
        back = (back - linears[m].bias) @ linears[m].weight
        if m:
            back = F.relu(back)
        loss = loss + relative(ds[m], back)
    return output, loss
