"""Invertibility in extreme cases: exact and diverged reverse passes, tokens, pictures of any size."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from racecar.inspect.invertibility import invertibility
from racecar.inspect.leakage import leakage
from racecar.inspect.ssim import ssim
from tests.networks import NETWORKS

# --- everything or nothing comes back


def identity():
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 144, bias=False))
    nn.init.eye_(model[1].weight)
    return model, torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(0))


def test_an_exact_reverse_pass():
    """PSNR is infinite; the table and the record can still be made."""
    found = invertibility(*identity())
    (depth,) = found
    assert (depth.way, depth.layerwise, depth.input) == (0, 0, 0)
    assert depth.psnr is None or depth.psnr > 100
    assert depth.ssim == pytest.approx(1)
    assert str(found)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["layers"][0]["input"] == 0


def test_one_exact_sample_among_others():
    """One black picture is rebuilt exactly: its PSNR is infinite, null in the record, and the error is that of the
    others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 20, bias=False))
    x = torch.rand(3, 1, 12, 12)
    x[0] = 0
    (found,) = json.loads(json.dumps(invertibility(model, x).to_dict(), allow_nan=False))["layers"]
    (others,) = invertibility(model, x[1:])
    assert found["psnr"] is None
    assert found["input"] == pytest.approx(others.input)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_record_of_a_net_that_diverged_is_json(value):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    model[2].weight.data[0, 0] = value
    found = invertibility(model, torch.randn(4, 6))
    assert str(found)
    json.dumps(found.to_dict(), allow_nan=False)


# --- tokens, pictures of any size


def test_tokens():
    """The reverse pass ends at the embedding, whose output is the first d."""
    model, tokens = NETWORKS["text"]()
    found = invertibility(model, tokens)
    assert found.mode == "full"
    assert not found.pictures
    torch.testing.assert_close(found.inputs, model.embedding(tokens).detach())
    assert all(back.shape == found.inputs.shape for back in found.rebuilt.values())
    assert all((d.psnr, d.ssim) == (None, None) for d in found)
    assert "PSNR" not in str(found)


@pytest.mark.parametrize("channels, side", [(1, 2), (1, 8), (3, 10), (3, 11), (1, 28)])
def test_pictures_of_any_size(channels, side):
    """SSIM is left out for pictures smaller than its window, and the table says why."""
    torch.manual_seed(0)
    model, x = nn.Conv2d(channels, 4, 3, padding=1), torch.rand(2, channels, side, side)
    found = invertibility(model, x)
    assert found.pictures
    (depth,) = found
    error = np.square((found.rebuilt["d2"] - x).numpy()).reshape(2, -1).mean(1)
    assert depth.psnr == pytest.approx(np.mean(10 * np.log10(found.range**2 / error)), rel=1e-5)
    for shown in (str(found), str(leakage(model, found))):
        assert ("no SSIM: its window" in shown) is (side < 11)
    if side >= 11:
        assert depth.ssim == pytest.approx(ssim(found.rebuilt["d2"], x, found.range).mean().item())


@pytest.mark.parametrize("shape", [(4, 5, 12, 12), (4, 12, 12), (4, 144), (4, 3, 6, 6, 6), (4, 3, 1, 12)])
def test_not_pictures(shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape[1:])), 10))
    found = invertibility(model, torch.rand(shape))
    assert not found.pictures
    (depth,) = found
    assert (depth.psnr, depth.ssim) == (None, None)
    assert depth.input is not None
    assert found.rebuilt["d2"].shape == shape


def test_half_precision():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(4, 6)
    exact = invertibility(model, x)
    found = invertibility(model.to(torch.bfloat16), x.to(torch.bfloat16))
    assert [d.input for d in found] == pytest.approx([d.input for d in exact], rel=0.05)
