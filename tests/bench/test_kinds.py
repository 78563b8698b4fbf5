"""The kinds of steps, what they cost in arithmetic, and how they are timed."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from racecar.bench import floor, memory, timing
from racecar.bench.kinds import PLAIN, Kind, hand_written, kinds, loss_function, srip_as_published, srip_ours
from racecar.bench.run import groups
from racecar.bench.workload import Circumstances, Workload
from racecar.racecar import Racecar
from racecar.reverse.terms import GRADIENTS
from racecar_lab.bench import by_hand
from racecar_lab.networks.dense import dense
from racecar_lab.networks.vgg import vgg


def mlp(half: bool = False) -> Workload:
    torch.manual_seed(0)
    return Workload("mlp", dense([6, 5, 4], nn.ReLU), torch.rand(8, 6), Circumstances(half=half))


# --- kinds --------------------------------------------------------------------------------------------------------


def test_labels():
    labels = [kind.label for kind in kinds([1.0, float(Fraction("1/16"))], [1, 4])]
    assert labels == [
        "plain", "racecar 1", "racecar 1/16", "racecar 1 every 4", "racecar 1/16 every 4",
        "by hand 1", "by hand 1/16", "srip", "srip as published",
    ]  # fmt: skip
    assert [kind.label for kind in kinds([0.3], hand=False, ort=False)] == ["plain", "racecar 3/10"]
    two = kinds([0.5], [1, 2], hand=False, ort=False, gradients=["reverse", "weights"])[1:]
    assert [kind.label for kind in two] == [
        "racecar 1/2", "racecar 1/2 every 2", "racecar weights 1/2", "racecar weights 1/2 every 2",
    ]  # fmt: skip
    assert groups(two) == [two[:2], two[2:]], "what is compiled once"
    modes = kinds([0.5], hand=False, ort=False, gradients=["reverse", "both"], modes=["layerwise", "linear"])[1:]
    assert [kind.label for kind in modes] == ["racecar 1/2", "racecar both 1/2", "racecar linear both 1/2"]
    (one,) = kinds([1.0], hand=False, ort=False, modes=["linear"])[1:]
    assert (one.label, one.gradient) == ("racecar linear 1", "weights")


@pytest.mark.parametrize("gradient, mode", [*((one, "layerwise") for one in GRADIENTS), ("weights", "linear")])
def test_the_loss_that_was_asked_for(gradient, mode):
    workload = mlp()
    loss_function(Kind("racecar", 0.5, gradient=gradient, mode=mode), workload)().backward()
    found = [weight.grad.clone() for weight in workload.parameters]
    workload.clear()
    output, term = Racecar(workload.model, *workload.args, mode=mode, fraction=0.5, gradient=gradient)(*workload.args)
    (workload.task(output) + term).backward()
    torch.testing.assert_close(found, [weight.grad for weight in workload.parameters])


def test_losses_are_the_task_and_the_regulariser():
    workload = mlp()
    task = loss_function(PLAIN, workload)()
    torch.testing.assert_close(task, nn.functional.cross_entropy(workload.model(workload.args[0]), workload.target))
    ours, hand = (loss_function(Kind(way, 0.5), workload)() - task for way in ("racecar", "by hand"))
    torch.testing.assert_close(ours, hand)
    torch.testing.assert_close(hand, by_hand.mlp(workload.model, workload.args[0], 0.5)[1])
    torch.manual_seed(1)
    with_srip = loss_function(Kind("srip"), workload)()
    torch.manual_seed(1)
    torch.testing.assert_close(with_srip - task, srip_ours(workload.model))


def test_the_task_of_other_outputs_is_their_mean_square():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return {"a": self.inner(x), "b": (2 * x, None)}

    workload = Workload("two", Two(), {"x": torch.ones(4, 3)}, Circumstances())
    assert workload.target is None
    expected = workload.model.inner(torch.ones(4, 3)).square().mean() + 4
    torch.testing.assert_close(loss_function(PLAIN, workload)(), expected)


def test_half_precision():
    for half, dtype in [(True, torch.bfloat16), (False, torch.float32)]:
        workload = mlp(half)
        with workload.autocast():
            assert workload.model(workload.args[0]).dtype == dtype
        assert loss_function(PLAIN, workload)().dtype == torch.float32


def test_a_hand_written_step_must_compute_the_same(monkeypatch):
    with pytest.raises(LookupError, match="nobody wrote one"):
        hand_written(Workload("tanh", dense([3, 3, 3], nn.Tanh), torch.rand(4, 3), Circumstances()), 1.0)

    def wrong(model, x, fraction):
        output, loss = by_hand.mlp(model, x, fraction)
        return output, 1.1 * loss

    monkeypatch.setattr(by_hand, "find", lambda model: wrong)
    with pytest.raises(RuntimeError, match="their times mean nothing"):
        hand_written(mlp(), 1.0)


def test_the_check_leaves_no_trace():
    torch.manual_seed(0)
    workload = Workload("vgg", vgg((4, "M"), size=4), torch.rand(8, 3, 4, 4), Circumstances())
    before, state = {k: v.clone() for k, v in workload.model.state_dict().items()}, torch.get_rng_state()
    hand_written(workload, 0.5)
    floor.flops(workload)
    assert all(torch.equal(before[name], value) for name, value in workload.model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in workload.parameters)


def test_both_srips_are_one():
    """The published loop against ours, with the same directions, and against dense algebra."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 4), nn.Conv2d(2, 30, 3)).double()
    directions = [torch.rand(4, dtype=torch.float64), torch.rand(18, dtype=torch.float64)]
    published = srip_as_published(model, lambda n, **_: directions[[4, 18].index(n)])
    expected = 0.0
    for w, u in zip((model[0].weight, model[1].weight.flatten(1).t()), directions, strict=True):
        gram = w @ w.t() - torch.eye(len(w), dtype=torch.float64)
        v = gram @ u
        expected += (gram @ (v / v.norm())).norm() ** 2
    torch.testing.assert_close(published, expected)
    from racecar.orthogonality import srip

    ours = srip(model, squared=True, draw=lambda layers, n, one, **_: directions[[4, 18].index(n)].view(layers, n, one))
    torch.testing.assert_close(published, ours)


def test_every_kind_is_one_graph_and_none_recompiles_another():
    workload = mlp(half=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        losses = [
            torch.compile(loss_function(kind, workload), backend="aot_eager", fullgraph=True)
            for kind in (*kinds([1.0, 0.5], hand=False), Kind("by hand", 0.5))
            if not kind.eager
        ]
        for _ in range(2):
            for loss in losses:
                loss().backward()
    torch._dynamo.reset()


# --- the floor ----------------------------------------------------------------------------------------------------


def test_floor_of_linear_layers():
    """Forward, weight gradient and data gradient, which the first layer does without; the same in the reverse pass."""
    plain, exact = floor.flops(mlp())
    first, second = 2 * 6 * 5, 2 * 5 * 4
    assert plain == 2 * first + 3 * second
    assert exact == plain + 3 * first + 3 * second


def test_floor_of_convolutions():
    workload = Workload("vgg", vgg((4, "M", 6), size=8, classes=5), torch.rand(3, 3, 8, 8), Circumstances())
    first, second, last = 2 * 64 * 9 * 3 * 4, 2 * 16 * 9 * 4 * 6, 2 * 16 * 6 * 5
    plain, exact = floor.flops(workload)
    assert plain == 2 * first + 3 * second + 3 * last
    assert exact == plain + 3 * (first + second + last)


def test_floor_of_a_slice():
    assert floor.floor(100, 210, 1.0) == pytest.approx(2.1)
    assert floor.floor(100, 210, 1 / 8) == pytest.approx(1.1375)
    assert floor.floor(100, 210, 0.0) == 1


def test_memory_that_others_hold(monkeypatch):
    """Tried again while there is hope."""
    tries, cleared = [], []
    monkeypatch.setattr(memory.time, "sleep", lambda seconds: None)

    def work():
        tries.append(1)
        if len(tries) < 3:
            raise torch.OutOfMemoryError("full")
        return "done"

    assert memory.patiently(work, lambda: cleared.append(1), patience=60) == "done"
    assert (len(tries), len(cleared)) == (3, 2)
    tries.clear()
    with pytest.raises(torch.OutOfMemoryError):
        memory.patiently(work, lambda: None, patience=0)


def test_what_says_that_memory_is_full():
    wrapped = ValueError("the model does not accept this")
    wrapped.__cause__ = torch.OutOfMemoryError("full")
    assert memory.is_full(wrapped)
    assert memory.is_full(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not memory.is_full(ValueError("another"))
    with pytest.raises(ZeroDivisionError):
        memory.patiently(lambda: 1 / 0, lambda: None, patience=60)


# --- timing -------------------------------------------------------------------------------------------------------


def test_the_order_turns():
    assert [timing.turned("abc", i) for i in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_interleaved_bursts():
    order = []
    bursts = {
        name: timing.burst_of((lambda name=name: order.append(name)), steps, cuda=False)
        for name, steps in (("a", 1), ("b", 1), ("k", 2))
    }
    seconds = timing.interleaved(bursts, 2, 4)
    # Warm-up, then bursts of four steps, each after a call that is not timed.
    assert " ".join(order) == " ".join("aabbkk" + "aaaaabbbbbkkk" + "bbbbbkkkaaaaa")
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2, "k": 2}


@pytest.fixture
def sleep(monkeypatch):
    """Takes time on a clock of its own, so that a busy machine changes nothing."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    return pass_time


def test_seconds_are_per_step(sleep):
    calls = {"one": (lambda: sleep(0.004), 1), "four": (lambda: sleep(0.008), 4)}
    seconds = timing.interleaved({name: timing.burst_of(*call, cuda=False) for name, call in calls.items()}, 3, 8)
    assert seconds == {"one": pytest.approx([0.004] * 3), "four": pytest.approx([0.002] * 3)}


def test_bursts_of_quick_steps_are_long(sleep):
    for seconds, length in ((0.03, 1), (0.0051, 4)):
        burst = timing.burst_of(lambda seconds=seconds: sleep(seconds), 1, cuda=False)
        assert timing.burst_length(burst, cuda=False) == length


def test_quartiles():
    assert timing.quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)
    assert timing.quartiles([7.0]) == (7.0, 7.0, 7.0)
