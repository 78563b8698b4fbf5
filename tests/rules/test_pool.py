"""Pooling is up-sampled to the true size, up-sampling is averaged; norms and activations are re-applied before that."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from racecar.rules import pool
from tests.rules.common import chain, close, drawn, forward, random, rebuild

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
AVERAGE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def nearest(x, size):
    """Nearest up-sampling, one dimension after the other."""
    for dim, (new, old) in enumerate(zip(size, x.shape[2:], strict=True), start=2):
        x = x.index_select(dim, torch.arange(new) * old // new)
    return x


def standard(x):
    dims = [0, *range(2, x.dim())]
    return (x - x.mean(dims, True)) / (x.var(dims, correction=0, keepdim=True) + 1e-5).sqrt()


def check(resample, undo, size, images=2):
    """Conv → batch norm → tanh → resample → 1×1 Conv; `undo` brings maps back to the true size.

    The batch norm sees the data before `undo`: after it the statistics would be other ones.
    """
    dims = len(size)
    a, b = CONV[dims](2, 3, 1), CONV[dims](3, 2, 1)
    norm = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dims](3)
    model, x = chain(a, norm, nn.Tanh(), resample, b), random(images, 2, *size)
    y = forward(model, x)
    with torch.no_grad():
        columns = b.weight.flatten(1)
        back = torch.einsum("no...,oi->ni...", y - b.bias.view(-1, *(1,) * dims), columns)
        expected = undo(torch.tanh(standard(back)), size)
    close(rebuild(model, x)[1], expected)


POOLS = {
    f"{kind}{dims}": (getattr(nn, f"{kind}Pool{dims}d"), dims)
    for kind in ("Max", "Avg", "LP", "AdaptiveMax", "AdaptiveAvg", "FractionalMax")
    for dims in (1, 2, 3)
    if hasattr(nn, f"{kind}Pool{dims}d")
}


@pytest.mark.parametrize("name", POOLS)
@drawn
@given(data=st.data())
def test_pooling(name, data):
    cls, dims = POOLS[name]
    draw = data.draw
    size = tuple(draw(st.lists(st.integers(4, 7), min_size=dims, max_size=dims)))
    some = st.tuples(*[st.integers(1, 4)] * dims)
    if "Adaptive" in name:
        pool = cls(draw(some if dims > 1 else st.integers(1, 4)))
    elif "Fractional" in name:
        pool = cls(2, output_size=draw(st.tuples(*[st.integers(1, 2)] * dims)))
    else:
        kernel, stride = draw(some), draw(st.none() | some)
        options = {"ceil_mode": draw(st.booleans())}
        if "LP" not in name:
            options["padding"] = tuple(draw(st.integers(0, k // 2)) for k in kernel)
        if "Max" in name:
            options["dilation"] = tuple(draw(st.integers(1, 2 if k < 3 else 1)) for k in kernel)
        first = (2.0,) if "LP" in name else ()
        if dims == 1 and "LP" in name:
            kernel, stride = kernel[0], stride and stride[0]
        pool = cls(*first, kernel, stride, **options)
    check(pool, nearest, size)


@drawn
@given(
    lead=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    size=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_up_sampling_by_whole_numbers(lead, size, data):
    """The same as nearest up-sampling, its gradient is a sum over each block, and channels stay last."""
    factors = [data.draw(st.integers(1, 3)) for _ in size]
    y = random(*lead, *size)
    last = y.dim() == 4 and data.draw(st.booleans())
    y = (y.contiguous(memory_format=torch.channels_last) if last else y).requires_grad_()
    x = pool.repeated(y, [old * factor for old, factor in zip(size, factors, strict=True)])
    batched = y if len(lead) == 2 else y.unsqueeze(0)
    expected = nearest(batched, x.shape[len(lead) :])
    close(x, expected if len(lead) == 2 else expected.squeeze(0))
    assert y.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
    g = random(*x.shape)
    close(*(torch.autograd.grad(one, y, g.reshape(one.shape))[0] for one in (x, expected)))


@pytest.mark.parametrize("dim", [0, 1])
def test_up_sampling_of_many_nets(dim):
    """Under vmap, with channels last."""
    many = random(3, 2, 5, 5, 4).permute(0, 1, 4, 2, 3)
    found = torch.vmap(lambda y: pool.repeated(y, [10, 15]), in_dims=dim)(many.movedim(0, dim))
    close(found, torch.stack([nearest(y, [10, 15]) for y in many]))


SPELLINGS = {
    "F.max_pool2d": lambda x: F.max_pool2d(x, 2),
    "F.max_pool2d with indices": lambda x: F.max_pool2d(x, 3, 2, return_indices=True)[0],
    "torch.max_pool2d": lambda x: torch.max_pool2d(x, 2, ceil_mode=True),
    "F.avg_pool2d by name": lambda x: F.avg_pool2d(input=x, kernel_size=3, stride=2, padding=1),
    "F.adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (None, 3)),
    "two pools": lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=0.5),
    "interpolate, bilinear": lambda x: F.interpolate(x, (3, 5), mode="bilinear"),
    "interpolate, area": lambda x: F.interpolate(x, size=3, mode="area"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name):
    def undo(y, size):
        return nearest(nearest(y, (3, 3)), size) if name == "two pools" else nearest(y, size)

    torch.manual_seed(0)
    check(SPELLINGS[name], undo, (6, 7))


GLOBAL = {
    "mean": lambda x: x.mean((2, 3)), "mean kept": lambda x: x.mean((2, 3), keepdim=True).flatten(1),
    "mean by name": lambda x: torch.mean(x, dim=[-1, -2]), "mean, axis": lambda x: x.mean(axis=(2, 3)),
    "mean kept by position": lambda x: x.mean([2, 3], True).squeeze(-1).squeeze(-1),
    "mean of mean": lambda x: x.mean(-1).mean(-1), "mean of flat": lambda x: x.flatten(2).mean(2),
    "amax": lambda x: x.amax((2, 3)), "amax kept": lambda x: x.amax(dim=(2, 3), keepdim=True).view(2, 3),
    "max": lambda x: x.max(3)[0].max(2)[0], "max values": lambda x: x.max(dim=-1).values.max(-1).values,
    "torch.max": lambda x: torch.max(x.flatten(2), 2).values,
    "max kept": lambda x: x.flatten(2).max(2, keepdim=True)[0].flatten(1), "amin": lambda x: x.amin((2, 3)),
    "median": lambda x: x.flatten(2).median(2).values, "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "adaptive view": lambda x: F.adaptive_max_pool2d(x, 1).view(2, 3),
    "whole kernel": lambda x: F.avg_pool2d(x, x.shape[2:]).view(2, -1), "sum": lambda x: x.sum((2, 3)) / 20,
}  # fmt: skip


@pytest.mark.parametrize("name", GLOBAL)
def test_global_pooling(name):
    """Conv → batch norm → tanh → global mean or maximum → Linear: the value is broadcast."""
    torch.manual_seed(0)
    a, b = nn.Conv2d(2, 3, 1), nn.Linear(3, 4)
    model, x = chain(a, nn.BatchNorm2d(3), nn.Tanh(), GLOBAL[name], b), random(2, 2, 4, 5)
    back = ((forward(model, x) - b.bias) @ b.weight)[:, :, None, None]
    expected = torch.tanh(standard(back)).expand(2, 3, 4, 5)
    if name == "sum":  # undone: × 20, then shared out among 20
        expected = torch.tanh(standard(back * 20)).expand(2, 3, 4, 5) / 20
    close(rebuild(model, x)[1], expected)


UP = {
    "nearest": (nn.Upsample(scale_factor=2), (3, 4)),
    "nearest to 5": (lambda x: F.interpolate(x, size=(5, 7)), (3, 4)),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), (3, 4)),
    "bilinear, aligned": (nn.UpsamplingBilinear2d(scale_factor=3), (3, 4)),
    "bilinear to 5": (lambda x: F.interpolate(x, (5, 7), mode="bilinear"), (3, 4)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2.5, mode="bicubic"), (3, 4)),
    "UpsamplingNearest2d": (nn.UpsamplingNearest2d(scale_factor=2), (3, 4)),
    "linear": (nn.Upsample(scale_factor=2, mode="linear"), (5,)),
    "nearest of volumes": (nn.Upsample(size=(4, 5, 6)), (2, 3, 2)),
    "trilinear": (nn.Upsample(scale_factor=2, mode="trilinear"), (2, 3, 2)),
    "nearest-exact": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"), (3, 4)),
}


@pytest.mark.parametrize("resample, size", UP.values(), ids=UP)
def test_up_sampling(resample, size):
    torch.manual_seed(0)
    check(resample, lambda y, size: AVERAGE[len(size)](y, size), size)


def test_nearest_up_sampling_is_undone_exactly():
    torch.manual_seed(0)
    layer, x = nn.Conv2d(3, 3, 1).double(), random(2, 3, 4, 5)
    nn.init.orthogonal_(layer.weight)
    for up in (nn.Upsample(scale_factor=3), lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, dim=3)):
        close(rebuild(chain(up, layer), x), [x])


@pytest.mark.parametrize("shuffle, channels", [(nn.PixelShuffle(2), 8), (nn.PixelUnshuffle(2), 2)])
def test_pixel_shuffle(shuffle, channels):
    """Undone exactly, at the input and in the middle; the norm is re-applied in its own layout."""
    torch.manual_seed(0)
    x = random(2, channels, 4, 6)
    width = shuffle(x).shape[1]
    last = nn.Conv2d(width, width, 1).double()
    nn.init.orthogonal_(last.weight)
    close(rebuild(chain(shuffle, last), x), [x])
    model = chain(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.Tanh(), shuffle, last)
    with torch.no_grad():
        inverse = {2: F.pixel_shuffle, 8: F.pixel_unshuffle}[channels]
        back = inverse(F.conv_transpose2d(forward(model, x) - last.bias.view(-1, 1, 1), last.weight), 2)
    close(rebuild(model, x)[1], torch.tanh(standard(back)))


def test_pool_below_the_activation():
    """Conv → pool → batch norm → tanh → Conv: d is the small map; the pool belongs to the layer below."""
    torch.manual_seed(0)
    a, b, x = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 2, 1), random(2, 2, 5, 7)
    for first, second in ((nn.MaxPool2d(2), nn.BatchNorm2d(3)), (nn.BatchNorm2d(3), nn.MaxPool2d(2))):
        model = chain(a, first, second, nn.Tanh(), b)
        back = torch.tanh(standard(F.conv_transpose2d(forward(model, x) - b.bias.view(-1, 1, 1), b.weight)))
        assert back.shape == (2, 3, 2, 3)
        full = F.conv_transpose2d(nearest(back, (5, 7)) - a.bias.view(-1, 1, 1), a.weight)
        close(rebuild(model, x, "full"), [full, back])


@pytest.mark.parametrize("pad", [nn.ZeroPad2d((0, 1, 0, 1)), nn.ZeroPad2d((2, 1, 0, 1))])
def test_norm_before_padding_and_pooling(pad):
    """Conv → batch norm → tanh → pad → max pool → Conv, as "same" pooling is written: still before up-sampling."""
    left, right, top, bottom = pad.padding

    def undo(y, size):
        return nearest(y, (6 + top + bottom, 6 + left + right))[:, :, top : top + 6, left : left + 6]

    torch.manual_seed(0)
    check(chain(pad, nn.MaxPool2d(3, 2)), undo, (6, 6))


class Position(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.randn(4, 6, 6))

    def forward(self, x):
        return x + self.position


POOLED = {
    "LayerNorm over the map": lambda: nn.LayerNorm([4, 6, 6]),
    "norm and a position": lambda: nn.Sequential(nn.BatchNorm2d(4), Position()),
    "function of a fixed size": lambda: chain(lambda x: x + x.tanh() * torch.linspace(0, 1, 6)),
}


@pytest.mark.parametrize("make", POOLED.values(), ids=POOLED)
@pytest.mark.parametrize("order", ["norm, pool", "norm, pool, tanh"])
def test_norm_that_fits_one_size_only(make, order):
    """It cannot be re-applied before up-sampling, so it is re-applied after it; it must not fail."""
    torch.manual_seed(0)
    tail = (nn.Tanh(), nn.MaxPool2d(2)) if order == "norm, pool" else (nn.MaxPool2d(2), nn.Tanh())
    model, x = chain(nn.Conv2d(2, 4, 3), make(), *tail, nn.Conv2d(4, 3, 2)), random(3, 2, 8, 8)
    first, second = rebuild(model, x)
    assert first.shape == x.shape
    assert second.shape == model[: 3 if order == "norm, pool" else 4](x).shape
