"""The kinds of steps, what they cost in arithmetic, and how they are timed."""

from functools import partial

import pytest
import torch
from torch import nn

from racecar.bench import floor, timing
from racecar.bench.kinds import PLAIN, ReverseKind, reverse_kinds
from racecar.bench.workload import StepOptions, Workload
from racecar.racecar import Racecar
from racecar.reverse.terms import GRADIENTS
from racecar_lab.networks.dense import dense
from racecar_lab.networks.vgg import vgg


def mlp(half: bool = False) -> Workload:
    torch.manual_seed(0)
    return Workload("mlp", dense([6, 5, 4], nn.ReLU), torch.rand(8, 6), StepOptions(half=half))


# --- kinds --------------------------------------------------------------------------------------------------------


def test_labels():
    def labels(*settings):
        return [kind.label for kind in reverse_kinds(*settings)]

    assert labels([1.0, 1 / 16], [1, 4]) == [
        "plain", "racecar 1", "racecar 1/16", "racecar 1 every 4", "racecar 1/16 every 4",
    ]  # fmt: skip
    assert labels([0.3], [1, 2], ["reverse", "weights"]) == [
        "plain", "racecar 3/10", "racecar 3/10 every 2", "racecar weights 3/10", "racecar weights 3/10 every 2",
    ]  # fmt: skip
    assert labels([0.5], [1], ["reverse", "both"], ["layerwise", "linear"]) == [
        "plain", "racecar 1/2", "racecar both 1/2", "racecar linear both 1/2",
    ]  # fmt: skip
    _, linear = reverse_kinds([1.0], modes=["linear"])
    assert (linear.label, linear.gradient) == ("racecar linear 1", "weights")


@pytest.mark.parametrize("gradient, mode", [*((one, "layerwise") for one in GRADIENTS), ("weights", "linear")])
def test_the_loss_that_was_asked_for(gradient, mode):
    workload = mlp()
    ReverseKind(0.5, gradient=gradient, mode=mode).loss(workload)().backward()
    found = [weight.grad.clone() for weight in workload.parameters]
    workload.clear_gradients()
    output, term = Racecar(workload.model, *workload.args, mode=mode, fraction=0.5, gradient=gradient)(*workload.args)
    (workload.task_loss(output) + term).backward()
    torch.testing.assert_close(found, [weight.grad for weight in workload.parameters])


def test_the_plain_loss_is_cross_entropy():
    workload = mlp()
    expected = nn.functional.cross_entropy(workload.model(workload.args[0]), workload.labels)
    torch.testing.assert_close(PLAIN.loss(workload)(), expected)


def test_the_task_of_other_outputs_is_their_mean_square():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return {"a": self.inner(x), "b": (2 * x, None)}

    workload = Workload("two", Two(), {"x": torch.ones(4, 3)}, StepOptions())
    assert workload.labels is None
    expected = workload.model.inner(torch.ones(4, 3)).square().mean() + 4
    torch.testing.assert_close(PLAIN.loss(workload)(), expected)


def test_half_precision():
    for half, dtype in [(True, torch.bfloat16), (False, torch.float32)]:
        workload = mlp(half)
        with workload.autocast():
            assert workload.model(workload.args[0]).dtype == dtype
        assert PLAIN.loss(workload)().dtype == torch.float32


# --- the floor ----------------------------------------------------------------------------------------------------


def test_floor_of_linear_layers():
    """Forward, weight gradient and data gradient, which the first layer does without; the same in the reverse pass."""
    plain, exact = floor.flops(mlp())
    first, second = 2 * 6 * 5, 2 * 5 * 4
    assert plain == 2 * first + 3 * second
    assert exact == plain + 3 * first + 3 * second


def test_floor_of_convolutions():
    workload = Workload("vgg", vgg((4, "M", 6), size=8, classes=5), torch.rand(3, 3, 8, 8), StepOptions())
    first, second, last = 2 * 64 * 9 * 3 * 4, 2 * 16 * 9 * 4 * 6, 2 * 16 * 6 * 5
    plain, exact = floor.flops(workload)
    assert plain == 2 * first + 3 * second + 3 * last
    assert exact == plain + 3 * (first + second + last)


def test_counting_leaves_no_trace():
    workload = Workload("vgg", vgg((4, "M"), size=4), torch.rand(8, 3, 4, 4), StepOptions())
    before, state = {k: v.clone() for k, v in workload.model.state_dict().items()}, torch.get_rng_state()
    floor.flops(workload)
    assert all(torch.equal(before[name], value) for name, value in workload.model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in workload.parameters)


def test_floor_of_a_slice():
    assert floor.floor(100, 210, 1.0) == pytest.approx(2.1)
    assert floor.floor(100, 210, 1 / 8) == pytest.approx(1.1375)
    assert floor.floor(100, 210, 0.0) == 1


# --- timing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sleep(monkeypatch):
    """Takes time on a clock of its own, so that a busy machine changes nothing."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    return pass_time


def test_all_kinds_take_turns(sleep):
    """Warm-up, then bursts of four steps, each after a call that is not timed; the first of a round changes."""
    order, said = [], []

    def call(name, seconds):
        order.append(name)
        sleep(seconds)

    made = {"a": (0.0051, 1), "b": (0.004, 1), "k": (0.008, 2)}
    bursts = {
        name: timing.burst_of(partial(call, name, seconds), steps, cuda=False)
        for name, (seconds, steps) in made.items()
    }
    length, seconds = timing.in_turns(bursts, 2, False, lambda done, note: said.append((done, note)))
    assert length == 4
    assert "".join(order) == "aaaa" + "aabbkk" + "aaaaabbbbbkkk" + "bbbbbkkkaaaaa"
    assert seconds == {name: pytest.approx([s / steps] * 2) for name, (s, steps) in made.items()}
    assert said == [(1, "round 1 of 2"), (1, "round 2 of 2")]
    assert timing.in_turns({}, 3, False) == (1, {})


def test_bursts_of_quick_steps_are_long(sleep):
    for seconds, length in ((0.03, 1), (0.0051, 4)):
        burst = timing.burst_of(lambda seconds=seconds: sleep(seconds), 1, cuda=False)
        assert timing.burst_length(burst, cuda=False) == length


def test_quartiles():
    assert timing.quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)
    assert timing.quartiles([7.0]) == (7.0, 7.0, 7.0)
