"""The default loss written by hand, net by net: what ours is timed against.

Each function takes (model, x, fraction) and returns (output, loss), the loss being that of
``Racecar(model, x, fraction=fraction)``: λ times the mean of the relative errors of all layers, each layer from its own
output, d a fixed target.
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

LossFunction = Callable[[nn.Module, Tensor, float], tuple[Tensor, Tensor]]


def find(model: nn.Module) -> LossFunction | None:
    """The function for a model; None if there is none."""
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
    weight = Settings().weight
    assert isinstance(weight, float)
    return weight * torch.stack(list(terms)).mean()


def norm_again(norm: nn.BatchNorm2d | None, x: Tensor) -> Tensor:
    """Batch norm with the statistics of the reverse data (N, C, H, W), if there is one; running statistics stay as they
    are."""
    if norm is None:
        return x
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
    return chain(list(model.children()), x, fraction)


def vgg(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Convolutions and pooling, then linear layers. x: (N, channels, H, W)."""
    assert isinstance(model, VGG)
    return chain([*model.features, model.avgpool, nn.Flatten(), *model.classifier], x, fraction)


def chain(parts: Sequence[nn.Module], x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Layers one after the other with batch norm, ReLU and pooling between them. x: (N, …)."""
    n, h = samples(x, fraction), x
    layers: list[nn.Conv2d | nn.Linear] = []
    norms: dict[int, nn.BatchNorm2d] = {}  # by the number of the layer that follows
    ds = [x[:n]]  # what each layer sees, before it is pooled
    pooled = h[:n].shape
    for part in parts:
        if isinstance(part, nn.Flatten):
            pooled = h[:n].shape
        h = part(h)
        if isinstance(part, nn.Conv2d | nn.Linear):
            layers.append(part)
        elif isinstance(part, nn.BatchNorm2d):
            norms[len(layers)] = part
        elif isinstance(part, nn.ReLU):
            ds.append(h[:n])
    terms = []
    for m, (layer, d, above) in enumerate(zip(layers, ds, [*ds[1:], h[:n]], strict=True)):
        if isinstance(layer, nn.Conv2d):
            back = conv_back(layer, above, above.shape[2])
        else:
            back = linear_back(layer, above)
            back = back.view(pooled) if d.dim() > 2 else back
        if m:
            back = enlarge(F.relu(norm_again(norms.get(m), back)), d)
        terms.append(relative(d, back))
    return h, weighed(terms)


def resnet(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """A stem, residual blocks and a linear layer. x: (N, 3, H, W)."""
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
    terms: list[Tensor] = []

    def rebuild(conv: nn.Conv2d, y: Tensor, height: int, d: Tensor, norm: nn.BatchNorm2d | None) -> None:
        back = F.relu(norm_again(norm, conv_back(conv, y, height)))
        terms.append(relative(d, enlarge(back, d)))

    pairs = [(block.conv1, block.bn1), (block.conv2, block.bn2)]
    if isinstance(block, Bottleneck):
        pairs.append((block.conv3, block.bn3))
    h, below, below_norm = x, d, norm
    for conv, bn in pairs:
        height = h.shape[2]
        h = bn(conv(h))
        if conv is not pairs[-1][0]:
            h = F.relu(h)
        rebuild(conv, h[:n], height, below, below_norm)
        below, below_norm = h[:n], bn
    shortcut = x
    if block.downsample is not None:
        shortcut = block.downsample(x)
        projection = block.downsample[0]
        assert isinstance(projection, nn.Conv2d)
        rebuild(projection, shortcut[:n], x.shape[2], d, norm)
    return F.relu(h + shortcut), terms


def vit(model: nn.Module, x: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """A patch embedding, transformer blocks and a linear head. x: (N, 3, H, W)."""
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
    return h + out, [
        relative(d1[:n], block.norm1(linear_back(attention.qkv, qkv[:n]))),
        relative(d2[:n], linear_back(attention.proj, mixed[:n])),
        relative(d3[:n], block.norm2(linear_back(mlp.fc1, d4[:n]))),
        relative(d4[:n], mlp.act(linear_back(mlp.fc2, out[:n]))),
    ]


LOSSES: dict[type[nn.Module], LossFunction] = {VGG: vgg, ResNet: resnet, ViT: vit}
