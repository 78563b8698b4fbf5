"""A network with an attached racecar loss: its calls, its loss, and what others see of it."""

import copy
import functools
import inspect
import pickle

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.integrations import attached as module
from racecar.integrations.attached import Attached
from racecar_lab.networks.vgg import vgg


@pytest.fixture
def net():
    torch.manual_seed(0)
    return vgg((4, "M", 6, "M"), size=8, channels=1, classes=3, norm=True).double()


@pytest.fixture
def x():
    return torch.rand(5, 1, 8, 8).double()


def test_loss_and_gradients_are_racecars(net, x):
    other = copy.deepcopy(net)
    output, loss = Racecar(other, x, weight=0.3, mode="full")(x)
    (output.sum() + loss).backward()
    attached = Attached(net, weight=0.3, mode="full")
    mine = net(x)
    own = attached.loss()
    (mine.sum() + own).backward()
    torch.testing.assert_close((mine, own), (output, loss), rtol=0, atol=0)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), other.buffers(), strict=True))
    assert list(attached.rr.terms) == ["features.0", "features.4", "classifier.0"]
    assert float(attached.loss()) == 0  # taken


def test_what_has_no_loss(net, x):
    attached = Attached(net)
    for _ in range(2):
        with torch.no_grad():
            net(x)
        net.eval()(x)
        net.train()
        attached.on = False
        net(x)
        assert (attached.calls, float(attached.loss()), attached.rr) == (0, 0.0, None)
        attached.on = True


def test_others_see_a_plain_network(net, x):
    """State dict, class name, signature, copies and files; after detaching nothing is left."""
    names, kind, before = list(net.state_dict()), type(net), set(vars(net))
    attached = Attached(net)
    net(x)
    assert (list(net.state_dict()), type(net).__name__, isinstance(net, kind)) == (names, kind.__name__, True)
    assert list(inspect.signature(net.forward).parameters) == ["x"]
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other) is kind
        torch.testing.assert_close(other.eval()(x), copy.deepcopy(net).eval()(x))
    with pytest.raises(ValueError, match=r"VGG has a racecar loss already: call detach\(\)"):
        Attached(net)
    attached.detach()
    assert (type(net), set(vars(net))) == (kind, before)
    net(x)
    assert attached.calls == 1
    Attached(net)  # and nobody has it
    Attached(net).detach()
    assert type(net) is kind


def test_hooks_run_once(net, x):
    seen = []
    net.register_forward_pre_hook(lambda *_: seen.append("before"))
    net.register_forward_hook(lambda _, __, output: seen.append("after") or 2 * output)
    plain = copy.deepcopy(net).eval()
    expected = copy.deepcopy(net)(x)
    seen.clear()
    attached = Attached(net)
    net(x)  # planned
    seen.clear()
    attached.detach()
    net.load_state_dict(plain.state_dict())
    attached = Attached(net)
    output = net(x)
    assert seen == ["before", "after"]
    torch.testing.assert_close(output, expected)


def test_a_forward_that_somebody_put_in_its_place(net, x):
    """As accelerate does for its precision."""
    plain = net.forward
    net.forward = lambda x: 3 * plain(x)
    attached = Attached(net)
    output = net(x)
    assert attached.calls == 1
    other = copy.deepcopy(net.state_dict())
    attached.detach()
    net.load_state_dict(other)
    torch.testing.assert_close(net(x), output)


@pytest.mark.parametrize("trainings", [1, 2])
def test_a_forward_with_autocast_over_ours(net, x, trainings):
    """As accelerate puts it over for every training: one autocast object cannot be entered twice at once."""
    net, x = net.float(), x.float()
    rr = Racecar(copy.deepcopy(net), x)
    for _ in range(trainings):
        attached = Attached(net)
        net.forward = torch.autocast("cpu", torch.bfloat16)(net.forward)
        output = net(x)
        with torch.autocast("cpu", torch.bfloat16):
            expected = rr(x)
        assert not torch.is_autocast_enabled("cpu")
        torch.testing.assert_close((output, attached.loss()), expected, rtol=0, atol=0)
        attached.detach()


def test_what_others_put_over_ours_stays(net, x):
    """A class, as fully_shard does, and another forward, as accelerate does for every training."""
    net.forward = functools.partial(type(net).forward, net)
    plain = net(x)
    attached = Attached(net)
    sharded = net.__class__ = type("Sharded", (type(net),), {})
    inner = net.forward
    outer = net.forward = lambda x: 2 * inner(x)
    torch.testing.assert_close(net(x), 2 * plain)
    attached.detach()
    assert (type(net), net.forward) == (sharded, outer)
    net(x)
    assert (attached.calls, float(attached.loss())) == (1, 0.0)  # what is left of ours is passed through
    again = Attached(net)
    net(x)
    assert (attached.calls, again.calls) == (1, 1)


def test_every(net, x):
    attached = Attached(net, weight=0.1, every=3)
    losses = []
    for _ in range(6):
        net(x)
        losses.append(float(attached.loss().detach()))
    assert [loss > 0 for loss in losses] == [True, False, False] * 2
    attached.detach()
    alone = Attached(net, weight=0.1)
    net(x)
    assert losses[0] == pytest.approx(3 * float(alone.loss().detach()))
    alone.detach()
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, not 0"):
        Attached(net, every=0)


def test_calls_by_name_and_twice():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 3)

        def forward(self, x, times, *, plus=0.0):
            return times * self.first(x) + plus

    net = Sum()
    attached = Attached(net)
    a, b = torch.rand(2, 5, 4)
    net(a, 2.0, plus=1.0)
    first = attached.loss()
    net(b, times=2.0, plus=1.0)
    second = attached.loss()
    net(a, 2.0, plus=1.0)
    net(b, 2.0, plus=1.0)
    torch.testing.assert_close(attached.loss(), (first + second) / 2)


def test_nobody_takes_the_loss(net, x, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 2)
    attached = Attached(net)
    net(x)
    net(x)
    with pytest.raises(RuntimeError, match="2 racecar losses wait, and nobody takes them"):
        net(x)
    attached.loss()
    net(x)


def test_compiled(net, x):
    attached = Attached(net)
    with pytest.raises(Exception, match="cannot be compiled: make a Racecar of it"):
        torch.compile(net, backend="eager", fullgraph=True)(x)
    assert attached.calls == 0
