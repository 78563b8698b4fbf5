"""OCNN against dense operators and the printed self-convolution; zero for orthogonal convolutions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from racecar.orthogonality import ocnn, so
from tests.orthogonality.common import close, drawn, orthonormal, random

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


# OCNN


def operator(f, channels, size):
    """The dense matrix of a linear function of an image: (outputs, inputs), each channels × places."""
    basis = torch.eye(channels * math.prod(size), dtype=torch.float64)
    with torch.no_grad():
        return f(basis.unflatten(1, (channels, *size))).flatten(1).T


def middle(matrix, channels, place):
    """‖rows of MMᵀ − I that belong to one place‖², M with rows channels × places."""
    gram = (matrix @ matrix.T - torch.eye(len(matrix))).unflatten(0, (channels, -1))
    return gram[:, place].square().sum()


@st.composite
def geometries(draw):
    """(in, out, groups, kernel, stride, dilation, padding)"""
    dims, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel, stride, dilation = {1: (6, 4, 4), 2: (4, 3, 2), 3: (3, 2, 1)}[dims]
    ranges = (1, kernel), (1, stride), (1, dilation), (0, 2)
    each = [[draw(st.integers(*one)) for _ in range(dims)] for one in ranges]
    return groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), groups, *map(tuple, each)


def reach(kernel, stride, dilation):
    """How many places to each side filters still overlap."""
    return [d * (k - 1) // s for k, s, d in zip(kernel, stride, dilation, strict=True)]


def centre(places):
    return int(np.ravel_multi_index([n // 2 for n in places], places))


@drawn
@given(geometries())
def test_ocnn_is_the_middle_of_the_dense_operator(geometry):
    into, out, groups, kernel, stride, dilation, padding = geometry
    torch.manual_seed(2)
    conv = CONV[len(kernel)](into, out, kernel, stride, padding, dilation, groups, bias=False).double()
    far, border = reach(kernel, stride, dilation), [-(-p // s) for p, s in zip(padding, stride, strict=True)]
    places = [2 * (f + b) + 1 for f, b in zip(far, border, strict=True)]  # the middle one is free of the padding
    size = [
        (n - 1) * s + d * (k - 1) + 1 - 2 * p
        for n, s, d, k, p in zip(places, stride, dilation, kernel, padding, strict=True)
    ]
    truth = middle(operator(conv, into, size), out, centre(places))
    close(ocnn(conv, side="rows"), truth)
    close(ocnn(conv.weight, side="rows", stride=stride, dilation=dilation, groups=groups), truth)


@drawn
@given(geometries())
def test_ocnn_of_a_transposed_convolution(geometry):
    """Its columns are the rows of the convolution whose adjoint it is."""
    into, out, groups, kernel, stride, dilation, _ = geometry
    torch.manual_seed(2)
    conv = TRANSPOSED[len(kernel)](into, out, kernel, stride, groups=groups, dilation=dilation, bias=False).double()
    places = [2 * f + 1 for f in reach(kernel, stride, dilation)]
    close(ocnn(conv, side="rows"), middle(operator(conv, into, places).T, into, centre(places)))


@drawn
@given(geometries())
def test_ocnn_is_the_printed_self_convolution(geometry):
    """And its sides differ by a constant: with stride 1 "columns" is the paper's formula for columns."""
    into, out, _, kernel, stride, _, _ = geometry
    torch.manual_seed(2)
    k, conv = random(out, into, *kernel), (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]

    def printed(k, stride):
        padding = [(n - 1) // s * s for n, s in zip(kernel, stride, strict=True)]
        z = conv(k, k, stride=stride, padding=padding)
        z[range(len(k)), range(len(k)), *(n // 2 for n in z.shape[2:])] -= 1
        return z.square().sum()

    once = (1,) * len(kernel)
    rows, columns = printed(k, stride), into * math.prod(map(min, kernel, stride))
    close(ocnn(k, stride=stride, side="rows"), rows)
    close(ocnn(k, stride=stride, side="columns"), rows + columns - out)
    close(ocnn(k, stride=stride), rows - max(0, out - columns))
    close(ocnn(k, side="columns"), printed(k.transpose(0, 1), once))


# Zero


def at_one_tap(out, into, *kernel):
    """An orthogonal matrix at one place of a kernel, zero elsewhere."""
    k = torch.zeros(out, into, *kernel, dtype=torch.float64)
    k[:, :, *(n // 2 for n in kernel)] = orthonormal(out, into)
    return k


def daubechies():
    """The four-tap wavelet and its scaling function: overlapping, and orthogonal when moved by two."""
    h = torch.tensor([1 + 3**0.5, 3 + 3**0.5, 3 - 3**0.5, 1 - 3**0.5], dtype=torch.float64) / 32**0.5
    return torch.stack([h, h.flip(0) * torch.tensor([1, -1, 1, -1])]).unsqueeze(1)


def squares(f):
    h = f()[:, 0]
    return torch.einsum("ax,by->abxy", h, h).reshape(4, 1, 4, 4)


ORTHOGONAL = {
    "linear, tall": (lambda: orthonormal(6, 2), {}),
    "square": (lambda: at_one_tap(4, 4, 3, 3), {}),
    "wide": (lambda: at_one_tap(3, 5, 2), {}),
    "tall": (lambda: at_one_tap(5, 3, 3, 2, 3), {}),
    "patches": (lambda: orthonormal(6, 2, 2, 2), {"stride": 2}),
    "tall patches": (lambda: orthonormal(9, 2, 2, 2), {"stride": (2, 2)}),
    "gaps": (lambda: orthonormal(3, 2, 1, 1), {"stride": 2}),
    "wavelet": (daubechies, {"stride": 2}),
    "wavelet, dilated": (daubechies, {"stride": 4, "dilation": 2}),
    "wavelet of pictures": (lambda: squares(daubechies), {"stride": 2}),
    "groups": (lambda: torch.cat([at_one_tap(2, 3, 3), at_one_tap(2, 3, 3)]), {"groups": 2}),
    "depthwise, tall": (lambda: torch.cat([at_one_tap(2, 1, 3, 3) for _ in range(4)]), {"groups": 4}),
}


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_zero_for_orthogonal_convolutions(name):
    make, how = ORTHOGONAL[name]
    k = make()
    assert 0 <= ocnn(k, **how) < 1e-12
    assert ocnn(1.01 * k, **how) > 1e-4
    assert ocnn(k + 0.01 * random(*k.shape), **how) > 1e-5


def test_an_orthogonal_kernel_is_no_orthogonal_convolution():
    k = orthonormal(4, 4, 3, 3)
    assert so(k) < 1e-12
    assert ocnn(k) > 0.1
