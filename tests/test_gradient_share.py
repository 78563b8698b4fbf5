"""GradientShare: the gradient of the racecar loss has a fixed share of the task's."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import GradientShare, Racecar, presets

SHARE = 0.03
WEIGHTS = ("0.weight", "2.weight")
"""What the loss of the preset reaches: neither biases nor the head."""


def net():
    layers = (nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    return nn.Sequential(*layers).double()


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(10, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (10,), generator=generator)


def losses(rr, x, y):
    output, loss = rr(x)
    return F.cross_entropy(output, y), loss


def gradients(rr, scalar):
    """Of every parameter; 0 where the scalar does not reach it."""
    named = dict(rr.model.named_parameters())
    each = torch.autograd.grad(scalar, list(named.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(named, each, strict=True))


def norm(each):
    return math.sqrt(sum(float(each[name].square().sum()) for name in WEIGHTS))


def by_hand(rr, x, y, factor=None):
    """The whole gradient and the factor, from one pass for the task and one for the loss."""
    task = gradients(rr, losses(rr, x, y)[0])
    pull = gradients(rr, losses(rr, x, y)[1])
    factor = SHARE * norm(task) / norm(pull) if factor is None else factor
    return {name: task[name] + factor * pull[name] for name in task}, factor


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_gradient_has_its_share(compiled):
    model, (x, y) = net(), batch()
    rr = Racecar(model, x, **presets.keep_learning)
    share = GradientShare(model.parameters(), SHARE)
    call = torch.compile(rr, backend="aot_eager") if compiled else rr
    share(*losses(call, x, y)).backward()
    truth, factor = by_hand(rr, x, y)
    assert share.factor.item() == pytest.approx(factor)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, truth[name])


def test_the_weight_of_the_racecar_cancels_out():
    model, (x, y) = net(), batch()
    totals = []
    for weight in (1e-3, 50.0):
        rr = Racecar(model, x, mode="linear", weight={"*": weight, "@head": 0})
        totals.append(GradientShare(model.parameters(), SHARE)(*losses(rr, x, y)))
    torch.testing.assert_close(*totals)


def test_it_is_measured_again_every_so_many_steps_and_not_in_between():
    model = net()
    rr = Racecar(model, batch()[0], **presets.keep_learning)
    share = GradientShare(model.parameters(), SHARE, every=3)
    last = None
    for step in range(5):
        x, y = batch(step)
        last = by_hand(rr, x, y)[1] if step % 3 == 0 else last
        task, loss = losses(rr, x, y)
        torch.testing.assert_close(share(task, loss), task + last * loss)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.2)


def test_it_goes_on_from_a_checkpoint():
    model = net()
    rr = Racecar(model, batch()[0], **presets.keep_learning)
    share = GradientShare(model.parameters(), SHARE, every=4)
    for step in range(2):
        share(*losses(rr, *batch(step)))
    other = GradientShare(model.parameters(), SHARE, every=4)
    other.load_state_dict(share.state_dict())
    for step in range(2, 6):
        torch.testing.assert_close(other(*losses(rr, *batch(step))), share(*losses(rr, *batch(step))))
    assert other.state_dict() == share.state_dict()
    for state in ({}, {"steps": -1, "factor": 0.0}, {"steps": 1, "factor": math.nan}):
        with pytest.raises(ValueError, match="state_dict"):
            other.load_state_dict(state)


def test_nothing_is_measured_where_the_loss_has_no_gradient():
    model, (x, y) = net(), batch()
    rr = Racecar(model, x, **presets.keep_learning)
    share = GradientShare(model.parameters(), SHARE)
    rr.schedule(on=False)
    task, loss = losses(rr, x, y)
    assert share(task, loss) == task
    assert share.steps == 0
    rr.schedule()
    with torch.no_grad():
        share(*losses(rr, x, y))
    assert share.steps == 0
    share(*losses(rr, x, y)).backward()
    assert share.steps == 1
    assert share.factor > 0


def test_frozen_weights_do_not_count():
    model, (x, y) = net(), batch()
    rr = Racecar(model, x, **presets.keep_learning)
    model[0].requires_grad_(False)
    share = GradientShare(model.parameters(), SHARE)
    share(*losses(rr, x, y))
    task, loss = losses(rr, x, y)
    weight = model[2].weight
    of_task, of_loss = (torch.autograd.grad(one, weight, retain_graph=True)[0].norm() for one in (task, loss))
    torch.testing.assert_close(share.factor, SHARE * of_task / of_loss)


def test_a_loss_that_is_zero_stays_out():
    weight = nn.Parameter(torch.ones(2))
    share = GradientShare([weight], SHARE)
    total = share(weight.sum(), (weight * 0).sum())
    assert total == 2
    assert share.factor == 0


def test_what_cannot_be_is_refused():
    model = net()
    for parameters in (model[0].weight, [], ["a"]):
        with pytest.raises(TypeError, match="model.parameters"):
            GradientShare(parameters, SHARE)
    for value in (0, -1.0, math.inf, "a"):
        with pytest.raises(ValueError, match="share must be"):
            GradientShare(model.parameters(), value)
    with pytest.raises(ValueError, match="every must be"):
        GradientShare(model.parameters(), SHARE, every=0)
