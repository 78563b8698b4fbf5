"""racecar.invert: gradient steps on the input, from where the reverse pass ends."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import Racecar, invert
from tests.by_hand import Net
from tests.rules.common import chain, close, random


def squares(output, y):
    return (output - y).square().flatten(1).sum(1) / y.square().flatten(1).sum(1)


def net():
    torch.manual_seed(0)
    return chain(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 6))


def test_by_hand():
    """Adam on the sum of the samples' errors, in evaluation mode, from the reverse pass."""
    model = net()
    rr, y = Racecar(model, random(3, 4)), random(5, 6)
    found = invert(rr, y, 4, lr=0.1)
    assert model.training
    model.eval()
    x = rr.reverse(y).detach().requires_grad_()
    optimiser, errors = torch.optim.Adam([x], 0.1), []
    for _ in range(4):
        errors.append(squares(model(x), y))
        optimiser.zero_grad()
        errors[-1].sum().backward()
        optimiser.step()
    close(found.x, x.detach())
    close(found.errors, torch.stack([*errors, squares(model(x), y)]).detach())


def test_nothing_in_the_model_changes():
    model = net()
    rr, y = Racecar(model, random(3, 4)), random(5, 6)
    state = {name: one.clone() for name, one in model.state_dict().items()}
    with torch.no_grad():  # it needs gradients of its own
        invert(rr, y, 3)
    close(dict(model.state_dict()), state)
    assert all(weight.grad is None for weight in model.parameters())


def test_no_step_judges_the_start():
    rr, y, x = Racecar(net(), random(3, 4)), random(5, 6), random(5, 4)
    found = invert(rr, y, 0, start=x)
    close(found.x, x)
    with torch.no_grad():
        close(found.errors, squares(rr.model.eval()(x), y)[None])


def test_a_sample_depends_on_no_other():
    rr, y = Racecar(net(), random(3, 4)), random(5, 6)
    close(invert(rr, y, 3).x[:2], invert(rr, y[:2], 3).x)


def test_outputs_that_are_not_given_are_free():
    model = Net(lambda m, x: {"a": m.a(x), "b": m.b(x)}, a=nn.Linear(3, 3), b=nn.Linear(3, 3)).double()
    rr, y = Racecar(model, random(2, 3)), {"b": random(4, 3)}
    found = invert(rr, y, 2)
    with torch.no_grad():
        close(found.errors[-1], squares(model.b(found.x), y["b"]))


def test_a_trained_reverse_pass_is_a_better_start_than_a_random_one():
    """On outputs that the model has for some input: fewer steps to one percent."""
    torch.manual_seed(0)
    x = torch.randn(256, 8) @ torch.randn(8, 8) / 3
    model = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, 16))
    rr, target = Racecar(model, x[:4], mode="full", weight=1.0), torch.randn(8, 16)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(150):
        output, loss = rr(x)
        optimiser.zero_grad()
        (F.mse_loss(output, x @ target / 3) + loss).backward()
        optimiser.step()
    with torch.no_grad():
        y = model(x)

    def steps(start):
        below = invert(rr, y, 80, start=start).errors.mean(1) <= 0.01
        return int(below.float().argmax()) if below.any() else 80

    assert 2 * steps(None) < steps(x.std() * torch.randn_like(x))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"rr": nn.Linear(4, 6)}, TypeError, "Racecar"),
        ({"steps": -1}, ValueError, "steps"),
        ({"steps": 2.5}, ValueError, "steps"),
        ({"lr": 0}, ValueError, "lr"),
        ({"y": random(5, 7)}, ValueError, "(5, 7)"),
        ({"y": random(5, 7), "start": random(5, 4)}, ValueError, "(5, 7)"),
        ({"start": random(5, 3)}, ValueError, "start"),
        ({"start": 3}, TypeError, "start"),
    ],
)
def test_mistakes_are_one_sentence(arguments, error, words):
    rr = Racecar(net(), random(3, 4))
    with pytest.raises(error) as caught:
        invert(**{"rr": rr, "y": random(5, 6), "steps": 2, **arguments})
    assert words in str(caught.value)
