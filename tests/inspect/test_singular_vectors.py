"""Singular vectors of layers against numpy.linalg.svd of kernels, and of operators written out column by column."""

import copy
import json
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from racecar.inspect.singular_vectors import singular_vectors
from tests.by_hand import Net
from tests.networks import NETWORKS


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def numpy(tensor):
    return tensor.detach().double().numpy()


def agree(found, matrix, atol=1e-7):
    """Values as NumPy has them; vectors orthonormal, in the span of NumPy's right vectors with about that value."""
    _, truth, right = np.linalg.svd(matrix)
    truth = np.concatenate([truth, np.zeros(len(right) - len(truth))])
    k, top = len(found), max(truth[0], 1e-300)
    assert k <= min(matrix.shape)
    assert found.vectors.shape == (k, matrix.shape[1])
    assert found.values.dtype == found.vectors.dtype == torch.float64
    np.testing.assert_allclose(found.values / top, truth[:k] / top, rtol=0, atol=atol)
    np.testing.assert_allclose(found.vectors @ found.vectors.mT, np.eye(k), atol=1e-9)
    largest = found.vectors.gather(1, found.vectors.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()
    for value, vector in zip(found.values / top, found.vectors.numpy(), strict=True):
        near = right[abs(truth / top - value.item()) < 1e-3]
        assert np.square(near @ vector).sum() == pytest.approx(1, abs=1e-5)


def shares(vectors, rows):
    """What each vector carries of some rows, by loops."""
    vectors, rows = numpy(vectors), numpy(rows)
    energy = sum(float(row @ row) for row in rows)
    return [sum(float(row @ vector) ** 2 for row in rows) / energy for vector in vectors]


def patches(x, conv):
    """All patches that a 2-d convolution sees, group by group: (·, in/groups · kh · kw), through F.unfold."""
    if conv.padding_mode != "zeros":
        x = F.pad(x, conv._reversed_padding_repeated_twice, mode=conv.padding_mode)
        padding = 0
    else:
        padding = conv.padding
    rows = []
    for part in x.chunk(conv.groups, 1):
        columns = F.unfold(part, conv.kernel_size, dilation=conv.dilation, padding=padding, stride=conv.stride)
        rows.append(columns.transpose(1, 2).flatten(0, 1))
    return torch.cat(rows)


# --- the matrix of a layer


def conv1d_of_hugging_face():
    from transformers.pytorch_utils import Conv1D

    return Conv1D(5, 7)


def transposed(kernel, groups):
    """What a transposed convolution makes of the channels at one place: (out · k…, in/groups), group under group."""
    parts = [numpy(part).reshape(len(part), -1).T for part in kernel.chunk(groups)]
    return np.concatenate(parts)


def flat(layer):
    return numpy(layer.weight).reshape(layer.weight.shape[0], -1)


MATRICES = {
    "linear": (lambda: nn.Linear(7, 5), flat, (7,)),
    "wide": (lambda: nn.Linear(30, 4), flat, (30,)),
    "tall": (lambda: nn.Linear(4, 30), flat, (4,)),
    "conv1d": (lambda: nn.Conv1d(3, 5, 4), flat, (3, 4)),
    "conv2d": (lambda: nn.Conv2d(3, 5, (3, 2), stride=2, dilation=2), flat, (3, 3, 2)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), flat, (2, 2, 2, 2)),
    "grouped": (lambda: nn.Conv2d(6, 8, 3, groups=2), flat, (3, 3, 3)),
    "depthwise": (lambda: nn.Conv2d(6, 12, 3, groups=6), flat, (1, 3, 3)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 3, 3), lambda m: transposed(m.weight, 1), (4,)),
    "transposed, 1-d": (lambda: nn.ConvTranspose1d(4, 6, 3), lambda m: transposed(m.weight, 1), (4,)),
    "transposed, grouped": (lambda: nn.ConvTranspose2d(6, 4, 3, groups=2), lambda m: transposed(m.weight, 2), (3,)),
    "hugging face": (conv1d_of_hugging_face, lambda m: numpy(m.weight).T, (7,)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Conv2d(2, 4, 3)), flat, (2, 3, 3)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(7, 5)), flat, (7,)),
    "half precision": (lambda: nn.Linear(7, 5).to(torch.bfloat16), flat, (7,)),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("k", [None, 2, 99])
def test_the_matrix_of_a_layer(name, k):
    torch.manual_seed(0)
    build, matrix, shape = MATRICES[name]
    layer = build()
    for model, called in ((layer, ""), (nn.Sequential(nn.ReLU(), layer), "1"), (Net(None, part=layer), "part")):
        found = singular_vectors(model, called, k)
        truth = matrix(layer)
        assert len(found) == min(k or 99, *truth.shape)
        agree(found, truth)
        assert (found.layer, found.shape, found.order, found.operator, found.carried) == (
            called, shape, "value", False, None,
        )  # fmt: skip
        if len(shape) == 3:
            assert found.images.shape == (len(found), *shape)
            assert torch.equal(found.images.flatten(1), found.vectors)
        else:
            assert found.images is None
    if name == "orthogonal":
        np.testing.assert_allclose(found.values, 1, atol=1e-6)


def test_one_of_several_weights():
    model = nn.MultiheadAttention(6, 2)
    agree(singular_vectors(model, "in_proj_weight"), numpy(model.in_proj_weight))
    agree(singular_vectors(nn.Sequential(model), "0.in_proj_weight"), numpy(model.in_proj_weight))
    agree(singular_vectors(nn.Sequential(model), "0.out_proj"), numpy(model.out_proj.weight))
    lstm = nn.LSTM(3, 4)
    agree(singular_vectors(lstm, "weight_ih_l0"), numpy(lstm.weight_ih_l0))


def test_a_layer_used_twice():
    model, x = NETWORKS["reused"]()
    first, second = (singular_vectors(model, name, data=x) for name in ("step", "step#2"))
    assert torch.equal(first.vectors, second.vectors)
    agree(second, numpy(model.step.weight))
    with torch.no_grad():
        one = torch.tanh(model.first(x))
        two = torch.tanh(model.step(one))
    np.testing.assert_allclose(first.carried, shares(first.vectors, one), rtol=1e-5)
    np.testing.assert_allclose(second.carried, shares(second.vectors, two), rtol=1e-5)


def test_a_large_matrix_is_searched():
    """Above 1500 rows and columns only the first k are computed, by the Krylov method."""
    rows, columns = 1501, 1530
    left, right = torch.linalg.qr(random(rows, 12))[0], torch.linalg.qr(random(columns, 12, seed=1))[0]
    layer = nn.Linear(columns, rows, bias=False)
    with torch.no_grad():
        layer.weight.copy_(left * torch.tensor([5.0, 5, 4, 3, 3, 3, 2, 1.5, 1, 0.5, 0.2, 0.1]) @ right.mT)
        layer.weight += 1e-3 * random(rows, columns, seed=2)
    found = singular_vectors(layer, "", 5)
    values, vectors = found.values, found.vectors
    weight, basis = layer.weight.detach().double(), right.double()
    for _ in range(8):  # subspace iteration: by each the others, of 0.08 at most beside 3, are a thousandth as large
        basis = torch.linalg.qr(weight.mT @ (weight @ basis))[0]
    np.testing.assert_allclose(values, torch.linalg.svdvals(weight @ basis)[:5], rtol=1e-7)
    np.testing.assert_allclose(vectors @ vectors.mT, np.eye(5), atol=1e-9)
    np.testing.assert_allclose((vectors @ layer.weight.double().mT).norm(dim=1).detach(), values, rtol=1e-7)


# --- the operator of a convolution


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
    """What racecar and orthogonality training lead to: all singular values alike."""
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
    assert found.shape == (40, 8, 8)
    model.eval()
    with torch.no_grad():
        seen = model[:8](x)
    np.testing.assert_allclose(found.carried, shares(found.vectors, seen.flatten(1)), rtol=1e-5)


def test_the_operator_of_a_linear_layer():
    layer = nn.Linear(4, 3)
    agree(singular_vectors(layer, "", operator=True, size=(4,)), numpy(layer.weight))
    agree(singular_vectors(layer, "", operator=True, size=(5, 4)), np.kron(np.eye(5), numpy(layer.weight)))


def test_a_conv_that_pads_by_itself():
    """As for TensorFlow's "same": the operator is that of the module, on what the module takes."""

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


# --- what a layer sees


def test_share_of_patches():
    for seed in range(12):
        torch.manual_seed(seed)
        groups = (1, 1, 2, 4)[seed % 4]
        mode = ("zeros", "circular", "reflect", "replicate")[seed // 3]
        options = {"stride": 1 + seed % 2, "padding": seed % 3, "dilation": 1 + seed % 2, "groups": groups}
        conv = nn.Conv2d(4, 8, 2 + seed % 2, padding_mode=mode, **options)
        x = random(20, 4, 7, 6, seed=seed)  # more than one portion
        found = singular_vectors(nn.Sequential(nn.Tanh(), conv), "1", data=x)
        np.testing.assert_allclose(found.carried, shares(found.vectors, patches(torch.tanh(x), conv)), rtol=1e-5)
        assert found.carried.sum() <= 1 + 1e-9
        if len(found) == found.vectors.shape[1]:
            assert found.carried.sum() == pytest.approx(1)


def test_share_of_patches_in_one_and_three_dimensions():
    torch.manual_seed(0)
    conv, x = nn.Conv1d(2, 9, 3, stride=2, padding=1), random(4, 2, 11)
    rows = F.pad(x, (1, 1)).unfold(2, 3, 2).transpose(1, 2).flatten(0, 1).flatten(1)
    found = singular_vectors(conv, "", data=x)
    np.testing.assert_allclose(found.carried, shares(found.vectors, rows), rtol=1e-5)
    assert found.carried.sum() == pytest.approx(1)  # all six of them
    conv, x = nn.Conv3d(1, 9, 2), random(3, 1, 4, 3, 5)
    rows = x.unfold(2, 2, 1).unfold(3, 2, 1).unfold(4, 2, 1).flatten(0, 4).flatten(1)
    found = singular_vectors(conv, "", data=x)
    np.testing.assert_allclose(found.carried, shares(found.vectors, rows), rtol=1e-5)
    assert found.carried.sum() == pytest.approx(1)


def test_share_of_features_and_channels():
    torch.manual_seed(0)
    x = random(5, 3, 8)
    found = singular_vectors(nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 4)), "0", data=x)
    np.testing.assert_allclose(found.carried, shares(found.vectors, x.flatten(0, 1)), rtol=1e-6)
    assert found.carried.sum() < 1
    for groups in (1, 2):
        layer, x = nn.ConvTranspose2d(6, 4, 3, groups=groups), random(5, 6, 4, 3)
        rows = torch.cat([part.permute(0, 2, 3, 1).reshape(-1, 6 // groups) for part in x.chunk(groups, 1)])
        found = singular_vectors(layer, "", data=x)
        np.testing.assert_allclose(found.carried, shares(found.vectors, rows), rtol=1e-6)
        assert found.carried.sum() == pytest.approx(1)
    layer, x = conv1d_of_hugging_face(), random(3, 4, 7)
    found = singular_vectors(layer, "", data=x)
    np.testing.assert_allclose(found.carried, shares(found.vectors, x.flatten(0, 1)), rtol=1e-6)


def test_order_by_data():
    """The data lie along the weakest vector."""
    layer = nn.Linear(4, 4, bias=False)
    layer.weight.data = torch.diag(torch.tensor([4.0, 3, 2, 1]))
    x = torch.tensor([[0.1, 0.2, 0.0, 2.0], [0.1, -0.2, 0.3, 3.0]])
    energy = x.square().sum(0) / x.square().sum()
    by_value = singular_vectors(layer, "", data=x)
    np.testing.assert_allclose(by_value.values, [4, 3, 2, 1])
    np.testing.assert_allclose(by_value.vectors, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(by_value.carried, energy, rtol=1e-6)
    order = [3, 2, 1, 0]
    assert energy.argsort(descending=True).tolist() == order
    by_data = singular_vectors(layer, "", data=x, order="data")
    for found in (by_data, by_value.ordered("data")):
        np.testing.assert_allclose(found.values, [1, 2, 3, 4])
        np.testing.assert_allclose(found.vectors, np.eye(4)[order], atol=1e-12)
        np.testing.assert_allclose(found.carried, energy[order], rtol=1e-6)
        assert found.order == "data"
    assert torch.equal(by_data.ordered("value").vectors, by_value.vectors)
    first = singular_vectors(layer, "", 2, data=x, order="data")
    np.testing.assert_allclose(first.values, [1, 2])  # of all four, not of the two largest


def test_order_by_data_of_an_operator():
    torch.manual_seed(0)
    conv, x = nn.Conv2d(1, 2, 3, padding=1), random(3, 1, 5, 5)
    found = singular_vectors(conv, "", 4, operator=True, data=x, order="data")
    everything = singular_vectors(conv, "", operator=True, data=x)
    np.testing.assert_allclose(found.carried, everything.carried.sort(descending=True).values[:4])
    assert (found.carried.diff() <= 0).all()


def test_no_data_at_all():
    """Zeros (a dead layer) have no energy: no vector carries a share of it."""
    found = singular_vectors(nn.Linear(4, 3), "", data=torch.zeros(5, 4))
    np.testing.assert_array_equal(found.carried, np.zeros(3))
    found = singular_vectors(nn.Conv2d(1, 3, 2), "", data=torch.zeros(5, 1, 4, 4))
    np.testing.assert_array_equal(found.carried, np.zeros(3))


def test_data_changed_in_place_later():
    """The layer reads a view of a tensor that is changed afterwards."""

    def forward(m, x):
        h = torch.relu(m.conv(x))
        y = m.fc(h.flatten(1))
        h += 1
        return y + m.other(h.flatten(1))

    torch.manual_seed(0)
    model = Net(forward, conv=nn.Conv2d(1, 2, 3, padding=1), fc=nn.Linear(32, 3), other=nn.Linear(32, 3))
    x = random(5, 1, 4, 4)
    found = singular_vectors(model, "fc", data=x)
    rows = torch.relu(model.conv(x)).flatten(1)
    np.testing.assert_allclose(found.carried, shares(found.vectors, rows), rtol=1e-5)


# --- weights that are used in another way than their module would


def attended(m, x):
    return m.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("name", ["attention.in_proj_weight", "attention"])
def test_attention_on_data(name):
    """By its weight's name, and by the name that the plan and ``activations`` give the layer."""
    torch.manual_seed(0)
    model = Net(attended, attention=nn.MultiheadAttention(6, 2, batch_first=True))
    x = random(3, 5, 6)
    found = singular_vectors(model, name, data=x)
    agree(found, numpy(model.attention.in_proj_weight))
    np.testing.assert_allclose(found.carried, shares(found.vectors, x.flatten(0, 1)), rtol=1e-5)


def test_the_name_of_the_only_weight():
    model = nn.Sequential(nn.Linear(4, 3))
    for data in (None, random(2, 4)):
        agree(singular_vectors(model, "0.weight", data=data), numpy(model[0].weight))


def test_weights_without_a_layer_module():
    """x @ W has the matrix Wᵀ, and a bare kernel sees patches."""
    model, x = NETWORKS["bare_weights"]()
    kernel = singular_vectors(model, "kernel", data=x)
    agree(kernel, numpy(model.kernel).reshape(4, 9))
    rows = F.unfold(x, 3, padding=1, stride=2).transpose(1, 2).flatten(0, 1)
    np.testing.assert_allclose(kernel.carried, shares(kernel.vectors, rows), rtol=1e-5)
    with torch.no_grad():
        h = F.conv2d(x, model.kernel, stride=2, padding=1).relu().flatten(1)
    matrix = singular_vectors(model, "weight", data=x)
    agree(matrix, numpy(model.weight).T)
    np.testing.assert_allclose(matrix.carried, shares(matrix.vectors, h), rtol=1e-5)


def test_a_square_weight_used_transposed():
    torch.manual_seed(0)
    model = Net(lambda m, x: x @ m.weight)
    model.weight = nn.Parameter(random(4, 4))
    agree(singular_vectors(model, "", data=random(3, 4, seed=1)), numpy(model.weight).T)


def test_the_decoder_of_a_tied_autoencoder():
    """Its matrix is the encoder's transposed: it sees codes."""
    model, x = NETWORKS["tied_autoencoder"]()
    found = singular_vectors(model, "encoder#2", data=x)
    agree(found, numpy(model.encoder.weight).T)
    np.testing.assert_allclose(found.carried, shares(found.vectors, torch.tanh(model.encoder(x))), rtol=1e-5)


def test_a_weight_that_forward_standardises():
    class Standardised(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)

    torch.manual_seed(0)
    layer = Standardised(2, 3, 2)
    found = singular_vectors(layer, "", data=random(2, 2, 5, 5))
    agree(found, numpy(layer.weight - layer.weight.mean((1, 2, 3), keepdim=True)).reshape(3, -1), atol=1e-6)


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


# --- pictures


def pictured(between, x, n):
    model = Net(lambda m, x: m.fc(between(x)), fc=nn.Linear(n, 4))
    return singular_vectors(model, "fc", data=x), model


PICTURES = random(4, 3, 4, 6)


def test_a_linear_layer_on_flattened_pictures():
    found, model = pictured(lambda x: x.flatten(1), PICTURES, 72)
    assert found.shape == (3, 4, 6)
    assert found.images.shape == (4, 3, 4, 6)
    assert torch.equal(found.images.flatten(1), found.vectors)
    again = singular_vectors(model, "fc")
    assert (again.shape, again.images) == ((72,), None)
    found, _ = pictured(lambda x: F.dropout(x[:, 0].flatten(1), 0.5, False), PICTURES, 24)
    assert found.shape in ((24,), (1, 4, 6))
    found, _ = pictured(lambda x: x.flatten(1), PICTURES[:, 0], 24)
    assert found.shape == (1, 4, 6)


def test_given_sizes():
    layer = nn.Linear(72, 4)
    for size, shape in (((3, 4, 6), (3, 4, 6)), ((9, 8), (1, 9, 8)), ([1, 9, 8], (1, 9, 8)), ((72,), (72,))):
        found = singular_vectors(layer, "", size=size)
        assert found.shape == shape
    assert found.images is None
    assert singular_vectors(nn.Linear(784, 10), "", 3, size=(28, 28)).images.shape == (3, 1, 28, 28)


def test_pooling_between():
    found, _ = pictured(lambda x: F.max_pool2d(x, 2).flatten(1), PICTURES, 18)
    assert (found.shape, found.images) == ((18,), None)
    found, _ = pictured(lambda x: x.mean((2, 3)), PICTURES, 3)
    assert (found.shape, found.images) == ((3,), None)


def test_behind_a_convolution():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 4))
    found = singular_vectors(model, "3", data=PICTURES)
    assert found.images.shape == (4, 5, 2, 4)


REARRANGED = {
    "channels last": lambda x: x.permute(0, 2, 3, 1).flatten(1),
    "mirrored": lambda x: x.flip(-1).flatten(1),
    "columns first": lambda x: x.transpose(2, 3).flatten(1),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_rearranged_pictures(name):
    """A picture with one bright pixel is the vector that looks for it; if that cannot be told, there is no picture."""
    between = REARRANGED[name]
    bright = torch.zeros(1, 3, 4, 6)
    bright[0, 1, 2, 5] = 1
    model = Net(lambda m, x: m.fc(between(x)), fc=nn.Linear(72, 1, bias=False))
    model.fc.weight.data = between(bright).clone()
    found = singular_vectors(model, "fc", data=PICTURES)
    assert found.images is None or torch.equal(found.images.float(), bright)


def test_normalised_pictures():
    """Constants, as of a data set's mean and deviation, leave a picture a picture."""
    found, _ = pictured(lambda x: ((x - 0.4) / 0.2).flatten(1), PICTURES, 72)
    assert found.shape == (3, 4, 6)


# --- bad input


CONV, LINEAR = nn.Conv2d(1, 4, 3), nn.Linear(6, 2)
BAD = {
    "unknown layer": (nn.Sequential(CONV), "nope", {}, "no layer 'nope'; the layers are: 0"),
    "unknown weight": (nn.Sequential(CONV), "0.nope", {}, "no layer '0.nope'"),
    "no matrix": (nn.Sequential(nn.ReLU(), CONV), "0", {}, "ReLU '0' has no weight matrix; layers with one: 1"),
    "bias": (LINEAR, "bias", {}, "no weight matrix"),
    "no k": (LINEAR, "", {"k": 0}, "k must be a whole number of at least 1, not 0"),
    "negative k": (CONV, "", {"k": -2, "operator": True, "size": (1, 8, 8)}, "k must be"),
    "half a k": (LINEAR, "", {"k": 1.5}, "k must be"),
    "size of the kernel": (CONV, "", {"size": (1, 3, 3)}, "size is for linear layers and operators"),
    "wrong size": (LINEAR, "", {"size": (2, 2)}, r"size \(2, 2\) has 4 elements, layer '\(model\)' sees 6"),
    "wrong channels": (CONV, "", {"operator": True, "size": (2, 8, 8)}, r"does not take inputs of size \(2, 8, 8\)"),
    "too small": (CONV, "", {"operator": True, "size": (1, 2, 2)}, "does not take inputs of size"),
    "no channels": (CONV, "", {"k": 2, "operator": True, "size": (8, 8)}, "does not take inputs of size"),
    "no operator size": (CONV, "", {"operator": True}, r"give size=\(C, H, W\) or data"),
    "negative size": (CONV, "", {"operator": True, "size": (1, -8, 8)}, "size"),
    "unknown order": (LINEAR, "", {"order": "size"}, "order must be one of value, data, not 'size'"),
    "order without data": (LINEAR, "", {"order": "data"}, "needs data"),
    "wrong data": (LINEAR, "", {"data": torch.zeros(2, 7)}, "does not accept"),
    "no samples": (LINEAR, "", {"data": torch.zeros(0, 6)}, "sample|empty"),
    "all of a large operator": (CONV, "", {"operator": True, "size": (1, 80, 80)}, "give k"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    model, layer, options, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        singular_vectors(model, layer, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_a_layer_that_does_not_run():
    model, x = NETWORKS["branching"]()
    assert len(singular_vectors(model, "right")) == 8
    with pytest.raises(ValueError, match="no layer 'right' runs on these inputs; the layers that do are: first, left"):
        singular_vectors(model, "right", data=x)


@pytest.mark.parametrize("data", [None, torch.ones(2, 6)])
def test_ordered_refuses(data):
    found = singular_vectors(LINEAR, "", data=data)
    with pytest.raises(ValueError, match="order must be one of value, data"):
        found.ordered("size")
    if data is None:
        with pytest.raises(ValueError, match="made with data"):
            found.ordered("data")


@pytest.mark.parametrize("options", [{}, {"k": 1, "operator": True, "size": (1, 16, 16)}])
def test_weights_that_are_not_finite(options):
    layer = nn.Conv2d(1, 4, 3)
    layer.weight.data[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        singular_vectors(layer, "", **options)


def test_not_a_module():
    with pytest.raises(TypeError, match="model must be a torch.nn.Module"):
        singular_vectors(lambda x: x, "")


# --- how it is shown


def test_table_and_record():
    layer, x = nn.Linear(3, 3, bias=False), torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]])
    layer.weight.data = torch.diag(torch.tensor([2.0, 1.5, 0.25]))
    found = singular_vectors(layer, "", 2, data=x)
    head, columns, first, second = str(found).splitlines()
    assert head == "2 right singular vectors of (model), shape (3,), by value"
    assert columns.split() == ["#", "value", "carried"]
    assert first.split() == ["1", "2", "33.33%"]
    assert second.split() == ["2", "1.5", "66.67%"]
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    carried = record.pop("carried")
    assert record == {"layer": "", "shape": [3], "operator": False, "order": "value", "values": [2.0, 1.5]}
    assert carried == pytest.approx([1 / 3, 2 / 3])
    plain = singular_vectors(layer, "", 1)
    assert "carried" not in str(plain)
    assert plain.to_dict()["carried"] is None


def test_no_warning_and_the_same_every_time():
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 8, 3, padding=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (singular_vectors(layer, "", 6, operator=True, size=(3, 12, 12)) for _ in range(2))
    assert torch.equal(one.vectors, two.vectors)
    agree(one, dense(layer, (3, 12, 12)), atol=1e-6)
