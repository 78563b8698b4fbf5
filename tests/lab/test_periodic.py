"""Networks on a periodic grid: they know no borders, and coupling layers have an exact inverse."""

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar_lab.networks.periodic import CouplingNet, count_parameters, coupling_net, periodic


def shaken(model):
    """The model with other weights in every layer."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.double()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("fields", [1, 2])
def test_six_convolutions_without_norm(fields):
    model = periodic(fields, 8)
    kinds = [type(part) for part in model]
    assert kinds == [nn.Conv2d, nn.ReLU] * 5 + [nn.Conv2d]
    assert model(torch.randn(3, fields, 16, 12)).shape == (3, fields, 16, 12)


@pytest.mark.parametrize("build, shift", [(lambda: periodic(2, 8), 3), (lambda: CouplingNet(2, 8), 4)])
def test_there_is_no_border(build, shift):
    """What moves before a step, around the edge, has moved after it; coupling nets move by whole blocks of cells."""
    model, x = shaken(build()), torch.randn(2, 2, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(model(x.roll((shift, shift), (2, 3))), model(x).roll((shift, shift), (2, 3)))


def test_run_backwards_there_is_no_border_either():
    model, y = shaken(periodic(2, 8)), torch.randn(2, 2, 16, 16, dtype=torch.float64)
    rr = Racecar(model, y, mode="full")
    torch.testing.assert_close(rr.reverse(y.roll(5, 2)), rr.reverse(y).roll(5, 2))


@pytest.mark.parametrize("fields", [1, 2])
def test_a_coupling_net_has_an_inverse(fields):
    model, x = shaken(CouplingNet(fields, 8)), torch.randn(3, fields, 16, 12, dtype=torch.float64)
    y = model(x)
    assert (y - x).abs().mean() > 0.1
    torch.testing.assert_close(model.inverse(y), x)
    torch.testing.assert_close(model(model.inverse(x)), x)


def test_it_starts_as_the_identity():
    x = torch.randn(3, 2, 16, 16)
    assert CouplingNet(2, 8)(x).equal(x)


@pytest.mark.parametrize("fields, width", [(1, 32), (2, 32), (2, 8)])
def test_a_coupling_net_is_as_large(fields, width):
    wanted = count_parameters(periodic(fields, width))
    assert count_parameters(coupling_net(fields, wanted)) == pytest.approx(wanted, rel=0.1)
