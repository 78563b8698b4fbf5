"""Convolutions go back as their adjoint, whatever their kernel, stride, padding, dilation and groups."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from racecar.rules import Operation
from racecar.rules.conv import fold_padding
from tests.rules.common import check_layer, check_rule, random, same_product, widely

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
MODES = ["zeros", "reflect", "replicate", "circular"]


def each(draw, dims, low, high):
    return tuple(draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims)))


def channels(draw):
    """(in, out, groups)"""
    groups = draw(st.integers(1, 3))
    return groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2)), groups


@st.composite
def convolutions(draw):
    """A convolution and an input for it."""
    dims = draw(st.integers(1, 3))
    kernel, dilation = each(draw, dims, 1, 4 if dims < 3 else 3), each(draw, dims, 1, 2)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    padding = draw(st.sampled_from(["same", "valid", "each", "one"]))
    mode = draw(st.sampled_from(MODES))
    stride = (1,) * dims if padding == "same" else each(draw, dims, 1, 3)
    pads = (0,) * dims
    if padding == "same":
        pads = tuple((r + 1) // 2 for r in reach)
    elif padding == "each":
        padding = pads = each(draw, dims, 0, 3)
    elif padding == "one":
        padding = draw(st.integers(0, 2))
        pads = (padding,) * dims
    more = 1 if mode == "reflect" else 0  # a reflected border is narrower than the map, a circular one at most as wide
    size = [
        max(1, r + 1 - 2 * p, p + more if mode != "replicate" else 1) + draw(st.integers(0, 3))
        for r, p in zip(reach, pads, strict=True)
    ]
    inside, out, groups = channels(draw)
    layer = CONV[dims](
        inside, out, kernel, stride, padding, dilation, groups, bias=draw(st.booleans()), padding_mode=mode
    )
    return layer, random(draw(st.integers(1, 2)), inside, *size)


@widely
@given(convolutions())
def test_convolutions(widely):
    layer, x = widely
    check_layer(layer, x)
    if layer.padding_mode == "zeros":
        func = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
        args = (None, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        check_rule(func, args, x)
        check_rule(func, args, x[0])  # without a batch


@st.composite
def transposed_convolutions(draw):
    dims = draw(st.integers(1, 3))
    kernel, stride, dilation = (each(draw, dims, 1, high) for high in (3, 3, 3 if dims < 3 else 2))
    padding = each(draw, dims, 0, 2)
    extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    size = each(draw, dims, 1, 4)
    made = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(size, stride, padding, dilation, kernel, extra, strict=True)
    ]
    assume(min(made) >= 1)
    inside, out, groups = channels(draw)
    layer = TRANSPOSED[dims](
        inside, out, kernel, stride, padding, extra, groups, bias=draw(st.booleans()), dilation=dilation
    )
    return layer, random(draw(st.integers(1, 2)), inside, *size)


@widely
@given(transposed_convolutions())
def test_transposed_convolutions(widely):
    layer, x = widely
    check_layer(layer, x)
    func = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.dim() - 3]
    args = (
        None, layer.weight, layer.bias, layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
    )  # fmt: skip
    check_rule(func, args, x)
    check_rule(func, args, x[0])


@widely
@given(st.data(), st.integers(1, 3), st.sampled_from(MODES[1:]))
def test_folded_padding(data, dims, mode):
    """A convolution's own padding: what was copied to the border is added back to where it came from."""
    pads = each(data.draw, 2 * dims, 0, 3)
    size = [max(pads[2 * i : 2 * i + 2]) + data.draw(st.integers(1, 3)) for i in reversed(range(dims))]
    x = random(2, 2, *size)
    op = Operation(F.pad, (None, pads, mode), {})
    y = torch.randn_like(op(x))
    same_product(op(x), y, x, fold_padding(op, y, x.shape))


SPELLINGS = {
    "F.conv2d": lambda x, w: F.conv2d(x, w, None, 2, 1),
    "F.conv2d by name": lambda x, w: F.conv2d(input=x, weight=w, padding=(1, 2), dilation=2),
    "torch.conv2d": lambda x, w: torch.conv2d(x, w, stride=(2, 3)),
    "same by name": lambda x, w: F.conv2d(x, w[:, :, :2, :2], padding="same"),
    "F.conv1d of flat images": lambda x, w: F.conv1d(x.flatten(2), w.flatten(2), stride=[2]),
    "torch.conv_transpose2d": lambda x, w: torch.conv_transpose2d(x, w.transpose(0, 1), stride=2, output_padding=1),
    "F.conv_transpose2d by name": lambda x, w: F.conv_transpose2d(x, weight=w.transpose(0, 1), dilation=(1, 2)),
    "torch.convolution": lambda x, w: torch.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
}


@pytest.mark.parametrize("f", SPELLINGS.values(), ids=SPELLINGS)
def test_spellings(f):
    torch.manual_seed(0)

    class Kernel(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 2, 3, 3))

        def forward(self, x):
            return f(x, self.kernel)

    check_layer(Kernel(), random(2, 2, 6, 5))
