"""The information plane of a model against planes worked out by hand and with NumPy and scikit-learn."""

import json
import math
import time
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from racecar.inspect.activations import activations
from racecar.inspect.information_plane import InformationPlane, SaturationWarning, bin_sweep, information_plane, plane
from racecar.inspect.mutual_information import noise_bounds
from tests.inspect.common import sklearn_bits


def bits(n):
    """All patterns of n bits, (2ⁿ, n)."""
    return (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).float()


def tanh_net(*sizes, seed=0):
    torch.manual_seed(seed)
    steps = [step for a, b in pairwise(sizes) for step in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*steps[:-1], nn.Softmax(1)).eval()


def test_a_plane_by_hand():
    """d2 = x1 + x2 of two bits (weights 1): 0, 1, 1, 2 with frequencies ¼, ½, ¼; the label is x1 AND x2."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    for layer in (model[0], model[2]):
        nn.init.ones_(layer.weight)
    x = bits(2)
    y = (x.sum(1) == 2).long()
    h_y = 2 - 0.75 * math.log2(3)  # H(¼)
    found = information_plane(model, x, y, bins=3, layers=["d1", "d2"])
    assert found.h_x == 2
    assert found.h_y == pytest.approx(h_y)
    first, second = found
    assert (first.name, first.kind, first.codes, first.binning, first.saturated) == ("d1", "input", 4, "range", True)
    assert (first.i_xd, first.i_dy) == pytest.approx((2, h_y))
    assert (second.name, second.layer, second.kind, second.codes, second.range) == ("d2", "2", "relu", 3, (0, 2))
    assert (second.i_xd, second.i_dy) == pytest.approx((1.5, h_y))  # H(¼, ½, ¼); the sum still decides the AND
    assert not second.saturated
    # Two bins, [0, 1) and [1, 2]: the code is OR. I(OR;AND), with p(0,0) = ¼, p(1,0) = ½, p(1,1) = ¼:
    # ¼ log2(¼/(¼·¾)) + ½ log2(½/(¾·¾)) + ¼ log2(¼/(¾·¼)) = ½ log2 4/3 + ½ log2 8/9
    coarse = information_plane(model, x, y, layers="2", bins=2)[0]
    assert coarse.i_xd == pytest.approx(h_y)  # H(¼) again
    assert coarse.i_dy == pytest.approx(0.5 * math.log2(4 / 3) + 0.5 * math.log2(8 / 9))


def test_a_plane_by_numpy_and_scikit_learn():
    model, x = tanh_net(6, 5, 3, 2), bits(6)
    y = (x.sum(1) > 3).long()
    with pytest.warns(SaturationWarning):
        found = information_plane(model, x, y)
    assert [(row.name, row.kind) for row in found] == [
        ("d1", "input"),
        ("d2", "tanh"),
        ("d3", "tanh"),
        ("d4", "softmax"),
    ]
    d, h = x, np.arange(64)
    for row, step in zip(found, [nn.Identity(), model[:2], model[2:4], model[4:]], strict=True):
        with torch.no_grad():
            d = step(d)
        low = -1 if row.kind == "tanh" else 0
        assert row.range == (low, 1)
        assert row.binning == ("range" if row.name == "d1" else "fixed")
        edges = np.linspace(low, 1, 31)[1:-1]
        codes = np.unique(np.digitize(d.double().numpy(), edges), axis=0, return_inverse=True)[1].reshape(-1)
        assert row.codes == codes.max() + 1
        assert row.i_xd == pytest.approx(sklearn_bits(h, codes), abs=1e-9)
        assert row.i_dy == pytest.approx(sklearn_bits(codes, y), abs=1e-9)
        assert row.saturated == (row.codes == 64)


def test_equal_inputs_are_one_input():
    model, x = tanh_net(3, 3, 2), bits(3)
    x = x[[0, 1, 2, 3, 4, 5, 6, 7, 7, 7]]
    y = torch.arange(10) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SaturationWarning)
        found = information_plane(model, x, y)
        twice = information_plane(model, x.repeat(2, 1), y.repeat(2))
    h_x = 0.7 * math.log2(10) + 0.3 * math.log2(10 / 3)  # seven inputs once, one three times
    assert (found.samples, found.inputs) == (10, 8)
    assert found.h_x == pytest.approx(h_x)
    assert found[0].i_xd == pytest.approx(h_x)
    assert found[0].saturated
    assert (twice.samples, twice.inputs) == (20, 8)
    for one, two in zip(found, twice, strict=True):
        assert (two.i_xd, two.i_dy, two.saturated) == (
            pytest.approx(one.i_xd),
            pytest.approx(one.i_dy),
            one.saturated,
        )


def test_saturation_is_flagged_noted_and_warned_of_once():
    model, x = tanh_net(6, 6, 6, 6), bits(6)
    y = x[:, 0].long()
    with pytest.warns(SaturationWarning, match=r"reaches its ceiling, 6.000 bits, at d2, d3: 1000 bins") as caught:
        found = information_plane(model, x, y, bins=1000, layers=["d1", "d2", "d3"])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert [row.saturated for row in found] == [True] * 3
    assert [row.i_xd for row in found] == [6] * 3
    assert str(found).count("saturated") == 3
    coarse = information_plane(model, x, y, bins=1)  # and no warning
    assert not any(row.saturated for row in coarse)
    assert {(row.i_xd, row.i_dy, row.codes) for row in coarse} == {(0, 0, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plane(activations(model, x), y, x, bins=1000)[1].saturated
        single = plane({"a": torch.ones(3, 2)}, y[:3], torch.zeros(3, 1))
    assert (single.h_x, single[0].saturated) == (0, False)


def test_bin_sweep_is_one_plane_per_number_of_bins():
    model, x = tanh_net(8, 5, 3, 2), bits(8)
    y = (x.sum(1) > 4).long()
    swept = bin_sweep(model, x, y, bins=(2, 4, 8, 512))
    assert list(swept) == [2, 4, 8, 512]
    for bins, found in swept.items():
        assert found == plane(activations(model, x), y, x, bins=bins)
    nested = [[found[i].i_xd for found in swept.values()] for i in range(4)]
    assert nested == [sorted(row) for row in nested]
    assert swept[512][1].saturated
    assert [row.name for row in bin_sweep(model, x, y, "d2", bins=[3], binning="mass")[3]] == ["d2"]


def test_bounds_are_the_second_opinion():
    model, x = tanh_net(6, 4, 2), bits(6)
    y = (x.sum(1) > 3).long()
    found = plane(activations(model, x), y, x, bins=10, bounds=True)
    for row, one in zip(found, activations(model, x), strict=True):
        width = 2 if row.kind == "tanh" else 1
        assert row.bounds == noise_bounds(one.tensor, y, width / (10 * math.sqrt(12)))
    assert plane({"a": x}, y, bounds=True, sigma=0.3)[0].bounds == noise_bounds(x, y, 0.3)
    assert found[0].bounds.i_xd == pytest.approx((6, 6), abs=1e-3)
    constant = plane({"a": torch.ones(4, 3)}, torch.arange(4), bounds=True)[0]
    assert (constant.i_xd, constant.i_dy, constant.codes) == (0, 0, 1)
    assert constant.bounds.i_xd == constant.bounds.i_dy == (0, 0)


@pytest.mark.parametrize("bounds", [False, True])
def test_goes_to_json(bounds):
    model, x = tanh_net(4, 3, 2), bits(4)
    found = plane(activations(model, x), x[:, 0], x, bounds=bounds)
    assert isinstance(found, InformationPlane)
    assert len(found) == 3
    assert ("KDE" in str(found)) == bounds
    read = json.loads(json.dumps(found.to_dict()))
    assert read["rows"][1]["i_xd"] == found[1].i_xd
    assert read["rows"][1]["range"] == [-1, 1]
    assert (read["rows"][1]["bounds"] is not None) == bounds
    assert (read["samples"], read["h_x"]) == (16, 4)


def test_a_wide_layer_is_cut_short_once_all_samples_differ():
    d = torch.rand(500, 20_000, generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    found = plane({"a": d}, torch.arange(500) % 2)[0]
    assert found.codes == 500
    assert time.process_time() - start < 0.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_plane():
    model, x = tanh_net(8, 5, 3, 2).double(), bits(8).double()
    y = (x.sum(1) > 4).long()
    here = plane(activations(model, x), y, x, bins=8, bounds=True)
    there = plane(activations(model.cuda(), x.cuda()), y, x.cuda(), bins=8, bounds=True)
    for one, two in zip(here, there, strict=True):
        assert (two.i_xd, two.i_dy, two.codes) == (pytest.approx(one.i_xd), pytest.approx(one.i_dy), one.codes)
        assert two.bounds.i_xd == pytest.approx(one.bounds.i_xd, abs=1e-9)
        assert two.bounds.i_dy == pytest.approx(one.bounds.i_dy, abs=1e-9)
    mass = plane({"a": x.cuda()}, y.cuda(), binning="mass")
    assert mass[0].i_xd == 8
