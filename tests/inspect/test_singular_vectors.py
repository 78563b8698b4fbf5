"""Singular vectors of layers against numpy.linalg.svd of their kernels; what is refused, and how they are shown."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from racecar.inspect.singular_vectors import singular_vectors
from tests.by_hand import Net
from tests.inspect.vector_cases import agree, conv1d_of_hugging_face, numpy, random, shares
from tests.networks import NETWORKS

# --- the matrix of a layer


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
def test_the_matrix_of_a_layer(name):
    torch.manual_seed(0)
    build, matrix, shape = MATRICES[name]
    layer = build()
    ways = ((layer, "", None), (nn.Sequential(nn.ReLU(), layer), "1", 2), (Net(None, part=layer), "part", 99))
    for model, called, k in ways:
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


def test_record():
    layer, x = nn.Linear(3, 3, bias=False), torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]])
    layer.weight.data = torch.diag(torch.tensor([2.0, 1.5, 0.25]))
    found = singular_vectors(layer, "", 2, data=x)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    carried = record.pop("carried")
    assert record == {"layer": "", "shape": [3], "operator": False, "order": "value", "values": [2.0, 1.5]}
    assert carried == pytest.approx([1 / 3, 2 / 3])
    plain = singular_vectors(layer, "", 1)
    assert "carried" not in str(plain)
    assert plain.to_dict()["carried"] is None
