"""Singular vectors of whole operators, compared with numpy.linalg.svd of their dense matrices."""

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from racecar.inspect.singular_vectors import singular_vectors
from tests.inspect.vector_cases import agree, numpy, random, shares
from tests.networks import NETWORKS


def dense(module, size):
    """Column by column: module(e_i) − module(0)."""
    module = copy.deepcopy(module).double()
    with torch.no_grad():
        zero = module(torch.zeros(1, *size, dtype=torch.float64))
        columns = []
        for i in range(torch.Size(size).numel()):
            unit = torch.zeros(torch.Size(size).numel(), dtype=torch.float64)
            unit[i] = 1
            columns.append((module(unit.view(1, *size)) - zero).flatten())
    return torch.stack(columns, 1).numpy()


@st.composite
def convolutions(draw):
    """A convolution with a random form, and an input size that it takes."""
    dims = draw(st.sampled_from([1, 2, 2, 2, 3]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = [groups * draw(st.integers(1, 3 if groups == 1 else 2)) for _ in range(2)]
    sides = [draw(st.integers(3, {1: 24, 2: 7, 3: 4}[dims])) for _ in range(dims)]
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    stride, dilation = ([draw(st.integers(1, 2)) for _ in range(dims)] for _ in range(2))
    torch.manual_seed(draw(st.integers(0, 999)))
    size = (channels[0], *sides)
    if draw(st.integers(0, 3)) == 0:
        padding = [draw(st.integers(0, side - 1)) for side in kernel]
        more = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
        layer = getattr(nn, f"ConvTranspose{dims}d")(
            *channels, kernel, stride, padding, more, groups, dilation=dilation
        )
    else:
        mode = draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
        padding = [draw(st.integers(0, min(2, side - 1))) for side in sides]
        layer = getattr(nn, f"Conv{dims}d")(*channels, kernel, stride, padding, dilation, groups, padding_mode=mode)
    try:
        assume(layer(torch.zeros(1, *size)).numel() > 0)
    except RuntimeError:
        assume(False)
    return layer, size


@given(convolutions())
def test_the_operator_of_a_convolution(given):
    layer, size = given
    truth = dense(layer, size)
    found = singular_vectors(layer, "", operator=True, size=size)
    assert (found.shape, found.operator, len(found)) == (size, True, min(truth.shape))
    agree(found, truth)
    k = min(max(1, (truth.shape[1] - 1) // 8), *truth.shape)  # few enough to be searched
    searched = singular_vectors(layer, "", k, operator=True, size=size)
    assert len(searched) == k
    agree(searched, truth, atol=1e-6)


@given(convolutions(), st.integers(0, 99))
def test_the_size_and_the_share_come_from_data(given, seed):
    layer, size = given
    x = random(3, *size, seed=seed)
    found = singular_vectors(layer, "", operator=True, data=x)
    assert found.shape == size
    agree(found, dense(layer, size))
    np.testing.assert_allclose(found.carried, shares(found.vectors, x.flatten(1)), rtol=1e-9)
    assert found.carried.sum() <= 1 + 1e-9
    if len(found) == found.vectors.shape[1]:
        assert found.carried.sum() == pytest.approx(1)


ORTHOGONAL = {
    "1×1": (lambda: nn.Conv2d(4, 4, 1), (4, 8, 8)),
    "patches": (lambda: nn.Conv2d(1, 4, 2, stride=2), (1, 16, 16)),
    "every fourth pixel": (lambda: nn.Conv2d(1, 1, 1, stride=4), (1, 16, 16)),
    "shift": (lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), (1, 12, 12)),
}


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_an_orthogonal_operator(name):
    """All singular values are equal, as after training with racecar or an orthogonality regulariser."""
    torch.manual_seed(0)
    build, size = ORTHOGONAL[name]
    layer = build()
    if name == "shift":
        nn.init.zeros_(layer.weight)
        layer.weight.data[0, 0, 0, 0] = 1
    else:
        nn.init.orthogonal_(layer.weight)
    found = singular_vectors(layer, "", 5, operator=True, size=size)
    np.testing.assert_allclose(found.values, np.ones(5), atol=1e-6)
    agree(found, dense(layer, size))


def test_no_more_values_than_rows():
    """An operator that makes 8 numbers has 8 singular values, whichever way they are found."""
    layer, size = nn.Conv2d(2, 2, 8, stride=8), (2, 16, 16)
    found = singular_vectors(layer, "", 20, operator=True, size=size)
    assert len(found) == 8
    agree(found, dense(layer, size))


def test_a_pooled_conv_sees_pooled_pictures():
    model, x = NETWORKS["paper_net"]()
    found = singular_vectors(model, "conv3", 3, operator=True, data=x)
    assert found.shape == (40, 4, 4)
    model.eval()
    with torch.no_grad():
        seen = model[:8](x)
    np.testing.assert_allclose(found.carried, shares(found.vectors, seen.flatten(1)), rtol=1e-5)


def test_the_operator_of_a_linear_layer():
    layer = nn.Linear(4, 3)
    agree(singular_vectors(layer, "", operator=True, size=(4,)), numpy(layer.weight))
    agree(singular_vectors(layer, "", operator=True, size=(5, 4)), np.kron(np.eye(5), numpy(layer.weight)))


def test_a_conv_that_pads_by_itself():
    """A module that pads its input itself, as TensorFlow's "same": the operator includes the padding."""

    class Same(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias)

    torch.manual_seed(0)
    layer = Same(1, 2, 2)
    found = singular_vectors(nn.Sequential(layer), "0", operator=True, data=random(3, 1, 5, 5))
    assert found.shape == (1, 5, 5)
    agree(found, dense(layer, (1, 5, 5)))


def test_a_conv_with_a_hook_for_its_weight():
    torch.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Conv2d(1, 2, 3))
    layer(random(2, 1, 6, 6))
    layer.eval()
    found = singular_vectors(layer, "", operator=True, size=(1, 6, 6))
    plain = nn.Conv2d(1, 2, 3)
    plain.weight.data = layer.weight.detach().clone()
    agree(found, dense(plain, (1, 6, 6)))


def test_order_by_data_of_an_operator():
    torch.manual_seed(0)
    conv, x = nn.Conv2d(1, 2, 3, padding=1), random(3, 1, 5, 5)
    found = singular_vectors(conv, "", 4, operator=True, data=x, order="data")
    everything = singular_vectors(conv, "", operator=True, data=x)
    np.testing.assert_allclose(found.carried, everything.carried.sort(descending=True).values[:4])
    assert (found.carried.diff() <= 0).all()


@pytest.mark.parametrize("name", ["kernel", "weight"])
def test_the_operator_of_a_bare_weight_is_refused(name):
    """No module stands for the layer: the model as a whole is not linear."""
    model, x = NETWORKS["bare_weights"]()
    with pytest.raises(ValueError, match=name):
        singular_vectors(model, name, 3, operator=True, size=(1, 8, 8))


@pytest.mark.parametrize(
    "model, name, size",
    [(nn.MultiheadAttention(4, 2), "in_proj_weight", (5, 4)), (nn.LSTM(4, 3), "weight_ih_l0", (5, 4))],
)
def test_the_operator_of_one_of_several_weights_is_refused(model, name, size):
    with pytest.raises(ValueError, match=name):
        singular_vectors(model, name, 1, operator=True, size=size)


def test_no_warning_and_the_same_every_time():
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 8, 3, padding=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (singular_vectors(layer, "", 6, operator=True, size=(3, 12, 12)) for _ in range(2))
    assert torch.equal(one.vectors, two.vectors)
    agree(one, dense(layer, (3, 12, 12)), atol=1e-6)
