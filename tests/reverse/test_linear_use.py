"""Mode "linear" in use: settings, the pure function, schedules, refusals and warnings."""

import warnings

import pytest
import torch
from torch import nn

from racecar import DeadLayerWarning, Every, Racecar
from racecar.functional import linear_loss, reverse_loss
from tests.by_hand import close, squares
from tests.reverse import linear_cases as cases
from tests.reverse.linear_cases import gradients, wrapped


def test_every_fraction_and_what_is_rebuilt():
    model, x, maps = cases.CASES["conv1d"]()
    rr = Racecar(model, x, mode="linear")
    assert (rr.mode, rr.gradient, rr.weight) == ("linear", "weights", 0.001)
    every, losses = Every(rr, 2), []
    for _ in range(4):
        every.step()
        losses.append(rr(x)[1])
    close(losses[0], losses[2])
    assert losses[1] == losses[3] == 0
    rr.schedule()
    close(2 * rr(x)[1], losses[0])
    h = cases.reads(model, x, maps)
    for back, (name, one) in zip(rr.reconstruct(x), h.items(), strict=True):
        close(back, cases.there_and_back(maps[name], one).detach())
    rr.weight = {"0": torch.tensor([1.0, 0.0, 2.0])[:, None]}
    features, back = torch.tensor([1.0, 0.0, 2.0])[:, None], cases.there_and_back(maps["0"], h["0"])
    close(rr(x)[1], (features * (back - h["0"]) ** 2).sum() / squares(h["0"][:, [0, 2]]))


def test_the_pure_function():
    model, x, _ = cases.CASES["conv1d"]()
    given = {"weight": {"*": 0.3, "@head": 0}, "fraction": 0.5, "scale": "mean", "reduction": "sum"}
    output, loss = linear_loss(model, x, **given)
    close((output, loss), reverse_loss(model, x, mode="linear", **given))
    close((output, loss), Racecar(model, x, mode="linear", **given)(x))
    plain = linear_loss(model, x)[1]
    close(plain, Racecar(model, x, mode="linear")(x)[1])
    assert not gradients(plain, x)[0].any()
    assert gradients(linear_loss(model, x, gradient="both")[1], x)[0].any()


def test_what_the_mode_refuses():
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    with pytest.raises(ValueError, match="gradient='reverse' would be the same as 'weights'"):
        Racecar(model, x, mode="linear", gradient="reverse")
    with pytest.raises(ValueError, match="no activation on the way back"):
        Racecar(model, x, mode="linear", input_activation="relu")
    rr = Racecar(model, x)
    assert rr.gradient == "reverse"
    rr.mode = "linear"
    assert rr.gradient == "weights"
    with pytest.raises(ValueError, match="same as 'weights'"):
        rr.gradient = "reverse"
    rr.gradient = "both"
    rr.mode = "full"
    assert rr.gradient == "both"
    loss = linear_loss(model, x)[1]
    with pytest.raises(RuntimeError, match="cannot be derived again"):
        torch.autograd.grad(loss, model.weight, create_graph=True)


def test_an_isometry_is_not_dead():
    """Its term is 0; that of a layer that reads 0 is, too."""
    model, x = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)), torch.randn(6, 4)
    nn.init.eye_(model[0].weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rr = wrapped(model, x)
        for _ in range(20):
            rr(x)
    assert rr.terms["0"] == 0
    rr = wrapped(model, x, weight={"*": 1, "@head": 0.5})
    with pytest.warns(DeadLayerWarning, match=r"'2' \(λ = 0.5\)"):
        [rr(-x.abs()) for _ in range(20)]
