"""Leakage compared with NumPy, for networks that reveal everything, nothing, or cannot be reversed in part."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from racecar.inspect.invertibility import invertibility
from racecar.inspect.leakage import READINGS, leakage
from racecar.inspect.ssim import ssim
from tests.by_hand import Net
from tests.inspect.common import LITTLE, NEARLY_ALL, flat_linear, identity, pictures
from tests.networks import NETWORKS


def best_constant(x):
    """The best constant for each input: the mean colour of a picture, else the mean of its features."""
    x = x.detach().double().numpy()
    means = np.empty_like(x)
    for i, one in enumerate(x):
        if x.ndim == 4:
            for c, channel in enumerate(one):
                means[i, c] = channel.mean()
        else:
            means[i] = one.mean()
    return means


def explained(x, back):
    x, flat = x.double().numpy(), best_constant(x)
    return 1 - np.square(x - back.double().numpy()).sum() / np.square(x - flat).sum()


def adjusted(x, back):
    """The squared correlation after each picture's mean colour is subtracted."""
    a = (x.double().numpy() - best_constant(x)).ravel()
    b = (back.double().numpy() - best_constant(back)).ravel()
    return np.corrcoef(a, b)[0, 1] ** 2


# --- the numbers


@pytest.mark.parametrize("name", ["vgg", "paper_net", "mlp", "mlp_norm", "vgg_plain", "tied", "resnet_pad"])
def test_against_numpy(name):
    model, x = NETWORKS[name]()
    back = invertibility(model, x)
    found = leakage(model, x)
    assert [leak.name for leak in found] == list(back.rebuilt)
    depths = {f"d{int(d.name[1:]) + 1}": d for d in back}
    for leak in found:
        rebuilt, depth = back.rebuilt[leak.name], depths[leak.name]
        assert leak.explained == pytest.approx(explained(x, rebuilt), rel=1e-9, abs=1e-9)
        assert leak.adjusted == pytest.approx(adjusted(x, rebuilt), abs=1e-9)
        assert 0 <= leak.adjusted <= 1
        assert leak.explained <= leak.adjusted + 1e-9  # the adjusted one is the best that scale and shift can do
        assert (leak.layer, leak.psnr, leak.ssim) == (depth.layer, depth.psnr, depth.ssim)
        assert leak.reading == next(text for share, text in READINGS if leak.adjusted >= share)
    assert list(found.hidden) == [d.layer for d in back if d.input is None]


@given(st.integers(1, 4), st.sampled_from([1, 3]), st.integers(11, 14), st.integers(0, 99))
def test_the_constant_baseline(n, channels, side, seed):
    x = 3 * pictures(n, channels, side, side, seed=seed)
    found = leakage(flat_linear(x.shape[1:], 5, seed), x)
    flat, span = best_constant(x), float(x.max() - x.min())
    errors = np.square(flat - x.numpy()).reshape(n, -1).mean(1)
    assert found.constant_psnr == pytest.approx(np.mean(10 * np.log10(span**2 / errors)), rel=1e-6)
    assert found.constant_ssim == pytest.approx(ssim(torch.from_numpy(flat), x.double(), span).mean().item(), rel=1e-6)


def test_an_identity_gives_away_everything():
    found = leakage(identity(144), pictures(3, 1, 12, 12))
    (leak,) = found
    assert (leak.explained, leak.adjusted) == pytest.approx((1, 1))
    assert leak.adjusted <= 1
    assert leak.reading == NEARLY_ALL
    assert found.reading.startswith("From d2, the output of 1, the reverse pass gives back 100% of the input's")
    assert "Inputs can be recognised from activations as deep as d2" in found.reading
    assert "lower bound" in found.reading
    assert "nothing is known" not in found.reading


def test_a_projection_gives_away_its_part():
    """A projection onto half of the directions reveals half of the energy of white noise."""
    model = flat_linear((400,), 200, bias=False)
    nn.init.orthogonal_(model[1].weight)
    x = torch.randn(50, 400, generator=torch.Generator().manual_seed(0))
    (leak,) = leakage(model, x)
    assert leak.explained == pytest.approx(0.5, abs=0.02)
    assert leak.adjusted == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("constant", [0.0, 0.1])
def test_a_constant_net_gives_away_nothing(constant):
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 5), nn.Tanh(), nn.Linear(5, 3))
    nn.init.zeros_(model[1].weight)
    found = leakage(model, pictures(3, 1, 12, 12), input_activation=lambda x: x + constant)
    for leak in found:
        assert leak.adjusted == pytest.approx(0, abs=1e-9)
        assert leak.explained <= 0
        assert leak.reading == LITTLE
    assert "gives back 0% of the input's variation. No depth gives back as much as half of it." in found.reading


@pytest.mark.parametrize("contrast, brightness", [(3, 0), (0.01, 0), (1, 5), (-2, 1), (1e-4, -7)])
def test_brightness_and_contrast_are_set_right(contrast, brightness):
    """Also for a negative contrast, a rebuilt picture with black and white swapped."""
    model, x = NETWORKS["vgg"]()
    plain = leakage(model.double(), x.double())
    changed = leakage(model, x.double(), input_activation=lambda back: contrast * back + brightness)
    for one, other in zip(plain, changed, strict=True):
        assert other.adjusted == pytest.approx(one.adjusted, rel=1e-6)
        assert other.explained != pytest.approx(one.explained)


def test_inputs_that_are_no_pictures():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(7, 6)
    found = leakage(model, x)
    assert (found.constant_psnr, found.constant_ssim) == (None, None)
    assert all((leak.psnr, leak.ssim) == (None, None) for leak in found)
    rebuilt = invertibility(model, x).rebuilt
    assert [leak.explained for leak in found] == pytest.approx([explained(x, back) for back in rebuilt.values()])


def test_sequences():
    """Of tokens, too, the best constant is the mean of all features of an input."""
    model, tokens = NETWORKS["text"]()
    found, back = leakage(model, tokens), invertibility(model, tokens)
    assert [leak.name for leak in found] == ["d2", "d3", "d4"]
    assert [leak.explained for leak in found] == pytest.approx(
        [explained(back.inputs, one) for one in back.rebuilt.values()]
    )


# --- what is hidden


def test_everything_behind_a_join():
    model = Net(lambda m, x, y: m.a(x * y), a=nn.Linear(6, 3))
    found = leakage(model, (torch.rand(4, 6), torch.rand(4, 6)))
    assert (len(found), found.hidden) == (0, ("a",))
    assert found.reading.startswith("From no depth is the reverse pass to the input unique")
    assert str(found).endswith(found.reading)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["depths"] == []
