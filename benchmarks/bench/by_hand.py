"""The reverse pass written by hand, net by net: what ours is timed against.

Each function takes (model, x, fraction) and returns (output, loss), the loss being that of
``Racecar(model, x, fraction=fraction)``: λ times the mean of the relative errors of all layers, d a fixed target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.reverse.settings import Settings
from racecar.support.compiling import compiling
from racecar_lab.networks.resnet import Basic, Bottleneck, ResNet
from racecar_lab.networks.vgg import VGG
from racecar_lab.networks.vit import EncoderBlock, ViT

DEFAULT = Settings()
LAYERWISE = DEFAULT.mode == "layerwise"
"""Every layer from its own output; else from what the layer above rebuilt, wherever the reverse pass is unique."""

LossFunction = Callable[[nn.Module, Tensor, float], tuple[Tensor, Tensor]]


def find(model: nn.Module) -> LossFunction | None:
    """The function for a model, None if nobody wrote one."""
    if isinstance(model, nn.Sequential) and all(isinstance(part, nn.Flatten | nn.Linear | nn.ReLU) for part in model):
        return mlp
    return next((step for kind, step in LOSSES.items() if isinstance(model, kind)), None)


def samples(x: Tensor, fraction: float) -> int:
    """The number of samples that the reverse pass sees, from the start of the batch."""
    return max(1, round(fraction * len(x)))


def relative(d: Tensor, back: Tensor) -> Tensor:
    """Σ(d − d')² / Σd², in float32 at least; d and d' of the same shape, d a fixed target."""
    wide = torch.promote_types(d.dtype, torch.float32)
    d, back = d.detach().to(wide), back.to(wide)
    # The compiler fuses the first form; eager PyTorch has one kernel for the second.
    error = (d - back).square().sum() if compiling() else F.mse_loss(back, d, reduction="sum")
    return error / torch.linalg.vector_norm(d).square()


def weighed(terms: Sequence[Tensor]) -> Tensor:
    """λ times the mean."""
    assert isinstance(DEFAULT.weight, float)
    return DEFAULT.weight * torch.stack(list(terms)).mean()


def norm_again(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch norm with the statistics of the reverse data (N, C, H, W); running statistics stay as they are."""
    if not norm.training or x.numel() == x.shape[1]:  # one value has no statistics
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)
    return F.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)


def conv_back(conv: nn.Conv2d, y: Tensor, height: int) -> Tensor:
    """y (n, out, h, w) through the transposed convolution to (n, in, height, width)."""
    if conv.bias is not None:
        y = y - conv.bias.view(-1, 1, 1)
    stride, padding, kernel = conv.stride[0], int(conv.padding[0]), conv.kernel_size[0]
    rest = height - ((y.shape[2] - 1) * stride - 2 * padding + kernel)
    return F.conv_transpose2d(y, conv.weight, None, stride, padding, rest)


def linear_back(linear: nn.Linear, y: Tensor) -> Tensor:
    """y (…, out) → (…, in)."""
    return (y - linear.bias) @ linear.weight


def enlarge(back: Tensor, d: Tensor) -> Tensor:
    """Nearest up-sampling to the size of d, if it was pooled."""
    return back if back.shape == d.shape else F.interpolate(back, size=d.shape[2:], mode="nearest")


def mlp(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """``nn.Sequential`` of linear layers with ReLU between them. x: (N, …)."""
    assert isinstance(model, nn.Sequential)
    n, linears = samples(x, fraction), [part for part in model if isinstance(part, nn.Linear)]
    h, ds = x.flatten(1), [x[:n].flatten(1)]
    for linear in linears[:-1]:
        h = F.relu(linear(h))
        ds.append(h[:n])
    output = linears[-1](h)

    ds.append(output[:n])
    back, terms = output[:n], []
    for m in range(len(linears) - 1, -1, -1):
        back = linear_back(linears[m], ds[m + 1] if LAYERWISE else back)
        if m:
            back = F.relu(back)
        terms.append(relative(ds[m], back))
    return output, weighed(terms)


def vgg(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """One reverse pass, from the last linear layer to the pictures. x: (N, channels, H, W)."""
    assert isinstance(model, VGG)
    n, h = samples(x, fraction), x
    convs: list[nn.Conv2d] = []
    norms: list[nn.BatchNorm2d | None] = []
    linears: list[nn.Linear] = []
    ds = [x[:n]]
    for part in model.features:
        h = part(h)
        if isinstance(part, nn.Conv2d):
            convs.append(part)
            norms.append(None)
        elif isinstance(part, nn.BatchNorm2d):
            norms[-1] = part
        elif isinstance(part, nn.ReLU):
            ds.append(h[:n])
    pooled = model.avgpool(h)
    h = pooled.flatten(1)
    for part in model.classifier:
        h = part(h)
        if isinstance(part, nn.Linear):
            linears.append(part)
        elif isinstance(part, nn.ReLU):
            ds.append(h[:n])

    ds.append(h[:n])
    back, terms = h[:n], []
    for linear in reversed(linears[1:]):
        output = ds.pop()
        back = F.relu(linear_back(linear, output if LAYERWISE else back))
        terms.append(relative(ds[-1], back))
    output = ds.pop()
    back = linear_back(linears[0], output if LAYERWISE else back).view(n, *pooled.shape[1:])
    for conv, norm in zip(reversed(convs), reversed(norms), strict=True):
        d = ds.pop()
        back = enlarge(F.relu(back if norm is None else norm_again(norm, back)), d)
        terms.append(relative(d, back))
        back = conv_back(conv, d if LAYERWISE else back, back.shape[2])
    return h, weighed([*terms, relative(x[:n], back)])


def resnet(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Every block by itself: the reverse pass starts again at each sum. x: (N, 3, H, W)."""
    assert isinstance(model, ResNet)
    n = samples(x, fraction)
    h = model.relu(model.bn1(model.conv1(x)))
    d = h[:n]
    terms = [relative(x[:n], conv_back(model.conv1, d, x.shape[2]))]
    first: nn.BatchNorm2d | None = model.bn1  # what lies between the stem and the first block is no sum
    if model.maxpool is not None:
        h = model.maxpool(h)
    for block in model.blocks():
        h, block_terms = residual(block, h, d, first)
        terms += block_terms
        d, first = h[:n], None
    output = model.fc(model.avgpool(h).flatten(1))
    back = F.relu(linear_back(model.fc, output[:n]))[:, :, None, None].expand_as(d)
    return output, weighed([*terms, relative(d, back)])


def residual(
    block: Basic | Bottleneck, x: Tensor, d: Tensor, norm: nn.BatchNorm2d | None
) -> tuple[Tensor, list[Tensor]]:
    """A block's output and its terms.

    Args:
        block: the block.
        x: what it sees, (N, C, H, W).
        d: the slice of the activation that x was pooled from, or of x itself.
        norm: the batch norm that made d, None if a sum did.
    """
    n = len(d)

    def into_d(conv: nn.Conv2d, y: Tensor) -> Tensor:
        back = conv_back(conv, y, x.shape[2])
        back = F.relu(back if norm is None else norm_again(norm, back))
        return relative(d, enlarge(back, d))

    pairs = [(block.conv1, block.bn1), (block.conv2, block.bn2)]
    if isinstance(block, Bottleneck):
        pairs.append((block.conv3, block.bn3))
    h, inner = x, []
    for conv, bn in pairs[:-1]:
        h = F.relu(bn(conv(h)))
        inner.append(h[:n])
    h = pairs[-1][1](pairs[-1][0](h))

    back, terms = h[:n], []
    for i in range(len(pairs) - 1, 0, -1):
        back = conv_back(pairs[i][0], back, inner[i - 1].shape[2])
        back = F.relu(norm_again(pairs[i - 1][1], back))
        terms.append(relative(inner[i - 1], back))
        back = inner[i - 1] if LAYERWISE else back
    terms.append(into_d(pairs[0][0], back))
    shortcut = x
    if block.downsample is not None:
        shortcut = block.downsample(x)
        projection = block.downsample[0]
        assert isinstance(projection, nn.Conv2d)
        terms.append(into_d(projection, shortcut[:n]))
    return F.relu(h + shortcut), terms


def vit(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Every linear layer by itself, but for the two of an MLP. x: (N, 3, H, W)."""
    assert isinstance(model, ViT)
    n, patch = samples(x, fraction), model.patch_embed.proj
    h = model.embed(x)
    grid = (x.shape[2] // patch.stride[0], x.shape[3] // patch.stride[1])
    tokens = (h[:n] - model.pos_embed)[:, 1:].transpose(1, 2).unflatten(2, grid)
    terms = [relative(x[:n], conv_back(patch, tokens, x.shape[2]))]
    for block in model.blocks:
        assert isinstance(block, EncoderBlock)
        h, block_terms = transformer(block, h, n)
        terms += block_terms
    d = model.norm(h[:, 0])
    output = model.head(d)
    return output, weighed([*terms, relative(d[:n], model.norm(linear_back(model.head, output[:n])))])


def transformer(block: EncoderBlock, h: Tensor, n: int) -> tuple[Tensor, list[Tensor]]:
    """A block's output and its terms on the first n samples. h: (N, tokens, width)."""
    attention, mlp = block.attn, block.mlp
    d1 = block.norm1(h)
    qkv = attention.qkv(d1)
    d2 = attention.mix(qkv)
    mixed = attention.proj(d2)
    h = h + mixed
    d3 = block.norm2(h)
    d4 = mlp.act(mlp.fc1(d3))
    out = mlp.fc2(d4)
    terms = [relative(d1[:n], block.norm1(linear_back(attention.qkv, qkv[:n])))]
    terms.append(relative(d2[:n], linear_back(attention.proj, mixed[:n])))
    back = mlp.act(linear_back(mlp.fc2, out[:n]))
    terms.append(relative(d4[:n], back))
    terms.append(relative(d3[:n], block.norm2(linear_back(mlp.fc1, d4[:n] if LAYERWISE else back))))
    return h + out, terms


LOSSES: dict[type[nn.Module], LossFunction] = {VGG: vgg, ResNet: resnet, ViT: vit}
