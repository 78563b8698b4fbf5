"""Inputs, bins, precisions and labels that an information plane accepts, and those it refuses."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from racecar.inspect.activations import Activation, activations
from racecar.inspect.information_plane import information_plane, plane


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, a, b, scale):
        return self.head((a + b) * scale)


@pytest.mark.parametrize("form", [tuple, lambda inputs: dict(zip("ab", inputs, strict=False), scale=inputs[2])])
def test_inputs_of_several_tensors(form):
    a, b = torch.tensor([0.0, 0, 1, 1, 1])[:, None], torch.tensor([0.0, 1, 0, 1, 1])[:, None]
    found = information_plane(
        Sum(), form((a, b, torch.tensor(2.0))), torch.tensor([0, 1, 1, 0, 0]), bins=3, layers="d1"
    )
    assert found.inputs == 4
    assert found[0].codes == 3


def test_ways_to_bin():
    torch.manual_seed(0)
    d, y = torch.randn(200, 2).relu() ** 4, torch.arange(200) % 5
    ranged, mass, auto = (plane({"a": d}, y, binning=way, bins=8)[0] for way in ("range", "mass", "auto"))
    assert auto == ranged
    assert ranged.range == mass.range == (0, float(d.max()))
    assert mass.codes > ranged.codes  # a few large values leave most bins of equal width empty
    assert plane({"a": d.sqrt()}, y, binning="mass", bins=8)[0].i_xd == mass.i_xd  # only the order counts
    fixed = plane({"a": d}, y, binning="fixed", range=(0, 1000), bins=8)[0]
    assert (fixed.binning, fixed.range) == ("fixed", (0, 1000))
    own = plane([Activation("d2", "x", d.tanh(), "tanh", (-1.0, 1.0))], y, binning="range")[0]
    assert own.binning == "range"
    assert own.range[0] == 0


def test_rounding_at_the_ends_of_a_fixed_range_is_forgiven():
    d = torch.tensor([[-1 - 1e-6], [-1], [1], [1 + 1e-6]])
    found = plane({"a": d}, torch.arange(4), binning="fixed", range=(-1, 1))[0]
    assert (found.codes, found.i_xd) == (2, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_and_images(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)).to(dtype)
    x = torch.rand(20, 1, 6, 6).to(dtype)
    found = plane(activations(model, x), torch.arange(20) % 2, x)
    truth = plane({a.name: a.tensor.double() for a in activations(model, x)}, torch.arange(20) % 2)
    assert [(r.i_xd, r.i_dy, r.codes) for r in found] == [(r.i_xd, r.i_dy, r.codes) for r in truth]
    assert [row.kind for row in found][:2] == ["input", "relu"]


@pytest.mark.parametrize("labels", [[1, 0, 1, 0], np.array([3, 2, 3, 2]), torch.tensor([True, False, True, False])])
def test_labels_are_whatever_tells_classes_apart(labels):
    d = torch.tensor([[1.0], [2.0], [1.0], [2.0]], requires_grad=True)
    assert plane({"a": d}, labels)[0].i_dy == 1
    assert plane({"a": d}, torch.tensor([0.5, -2.5, 0.5, -2.5]))[0].i_dy == 1


def bad(**changes):
    d, y = changes.pop("d", torch.rand(4, 2)), changes.pop("y", torch.arange(4))
    return lambda: plane([Activation("d3", "body.1", d, "relu", None)], y, **changes)


nan, inf = torch.full((4, 2), math.nan), torch.tensor([[0.0], [1], [math.inf], [2]])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (bad(d=nan), ValueError, "activation d3 (read by body.1) has infinite or NaN values"),
        (bad(d=inf), ValueError, "activation d3 (read by body.1) has infinite or NaN values"),
        (bad(d=torch.rand(3, 2)), ValueError, "activation d3 has shape (3, 2), not one entry for each of 4 labels"),
        (bad(d=torch.rand(4, 0)), ValueError, "activation d3 has shape (4, 0)"),
        (bad(d=torch.rand(4, 2) + 1j), TypeError, "activation d3 is complex"),
        (bad(y=torch.eye(4)), ValueError, "labels must be of shape (N,), one per input, not (4, 4); labels.argmax(1)"),
        (bad(y=torch.tensor([0, 1, math.nan, 0])), ValueError, "NaN"),
        (bad(y=torch.arange(0)), ValueError, "labels must be of shape (N,)"),
        (bad(y=["cat", "dog", "cat", "dog"]), TypeError, "labels must be a tensor of shape (N,), not list"),
        (bad(inputs=torch.rand(5, 2)), ValueError, "there are 4 labels, but no input has 4 samples"),
        (bad(bins=0), ValueError, "bins must be a whole number of at least 1"),
        (bad(binning="even"), ValueError, "binning must be 'auto', 'fixed', 'range', 'mass', not 'even'"),
        (bad(binning="fixed"), ValueError, "d3 has no range of its own: give range=(low, high)"),
        (bad(binning="fixed", range=(1, 0)), ValueError, "low < high"),
        (bad(binning="fixed", range=(5, 6)), ValueError, "outside the range (5, 6)"),
        (bad(range=(0, 1)), ValueError, "range goes with binning='fixed'"),
        (bad(sigma=1.0), ValueError, "bounds=True"),
        (bad(bounds=True, sigma=-1.0), ValueError, "sigma must be a finite number above 0"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
