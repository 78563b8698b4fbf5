"""The share of a layer's input energy that each singular vector carries, for every way to use a weight."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from racecar.inspect.singular_vectors import singular_vectors
from tests.by_hand import Net
from tests.inspect.vector_cases import agree, conv1d_of_hugging_face, numpy, random, shares
from tests.networks import NETWORKS


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
    """Vectors are ordered by data: here all data lie along the vector with the smallest value."""
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
    """The layer is found by the name of its weight and by its name in the plan."""
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
