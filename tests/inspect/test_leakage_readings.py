"""Leakage as sentences and as a record, its arguments, and extreme inputs."""

import json
import math
from dataclasses import replace

import pytest
import torch

from racecar.inspect.invertibility import invertibility
from racecar.inspect.leakage import leakage
from tests.inspect.common import LITTLE, MUCH, NEARLY_ALL, SOME, flat_linear, identity, pictures
from tests.networks import NETWORKS

# --- how it is called


def test_from_an_invertibility():
    model, x = NETWORKS["vgg"]()
    back = invertibility(model, x, statistics="running", range=2.0)
    one, other = leakage(model, back), leakage(model, x, statistics="running", range=2.0)
    assert one.to_dict() == other.to_dict()
    assert leakage(model, x).to_dict() != one.to_dict()


def test_options_of_a_look_that_was_taken_are_refused():
    """Options of the reverse pass are refused when its result is given: they would change nothing."""
    model, x = NETWORKS["vgg"]()
    back = invertibility(model, x)
    with pytest.raises((TypeError, ValueError), match="statistics"):
        leakage(model, back, statistics="running")


def test_bad_options():
    model, x = NETWORKS["mlp"]()
    with pytest.raises(TypeError, match="nope"):
        leakage(model, x, nope=1)
    with pytest.raises(ValueError, match="statistics must be one of"):
        leakage(model, x, statistics="nope")


# --- extremes


def test_pictures_without_content():
    """Constant pictures: there is no variation that could come back."""
    for value in (0.0, 0.1, 1 / 3):
        found = leakage(flat_linear((3, 12, 12), 5), torch.full((2, 3, 12, 12), value))
        (leak,) = found
        assert leak.adjusted == pytest.approx(0, abs=1e-6)
        assert abs(leak.explained) <= 1
        assert str(found)


@pytest.mark.parametrize("model", [identity(144), flat_linear((144,), 5)])
@pytest.mark.parametrize("x", [pictures(2, 1, 12, 12), torch.full((2, 1, 12, 12), 0.5)])
def test_the_record_is_json(model, x):
    """Also where PSNR is infinite: an exact reverse pass, or pictures that are constant themselves."""
    json.dumps(leakage(model, x).to_dict(), allow_nan=False)


def test_a_net_that_diverged_is_not_called_safe():
    model = flat_linear((6,), 5)
    model[1].weight.data[0, 0] = math.nan
    (leak,) = found = leakage(model, torch.rand(4, 6))
    assert leak.reading != LITTLE
    assert "0%" not in found.reading


# --- in words


SHARES = {0.9: NEARLY_ALL, 0.89: MUCH, 0.5: MUCH, 0.49: SOME, 0.1: SOME, 0.09: LITTLE, 0.0: LITTLE}


@pytest.mark.parametrize("share", SHARES)
def test_readings(share):
    """The sentence for rebuilt pictures of a given correlation: a mix of the picture and noise orthogonal to it."""
    x = pictures(2, 1, 12, 12).double()
    model = flat_linear((144,), 5)
    centred = x - x.mean((2, 3), keepdim=True)
    noise = pictures(2, 1, 12, 12, seed=1).double()
    noise -= noise.mean((2, 3), keepdim=True)
    noise -= (noise * centred).sum() / centred.square().sum() * centred
    noise *= centred.norm() / noise.norm()
    share_of_it = min(1.0, share + 1e-9)
    back = math.sqrt(share_of_it) * centred + math.sqrt(1 - share_of_it) * noise
    found = leakage(model, replace(invertibility(model, x.float()), inputs=x, rebuilt={"d2": back}))
    (leak,) = found
    assert leak.adjusted == pytest.approx(share, abs=1e-6)
    assert leak.reading == SHARES[share]
    assert ("can be recognised" in found.reading) == (share >= 0.5)


def test_record():
    model, x = NETWORKS["vgg"]()
    found = leakage(model, x)
    assert len(found) == 5
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["reading"] == found.reading
    assert str(found).endswith(found.reading)
    assert record["constant"] == {"psnr": found.constant_psnr, "ssim": found.constant_ssim}
    assert record["depths"] == [vars(leak) for leak in found]
    assert record["hidden"] == []
