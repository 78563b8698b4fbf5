"""Every: the reverse pass on every k-th step, with k times the weight."""

import copy
import pickle
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar import Every
from racecar.reverse import eager_step, engine
from tests.losses import classic
from tests.networks import NETWORKS
from tests.reverse.test_no_sync import witness
from tests.steps import Step, assert_same, step, task

MASK = torch.tensor([1.0, 0, 0, 1, 0, 0])
WEIGHTS = {"number": 0.3, "dict": {"*": 0.3, "2": 0.5}, "features": {"*": 1, "0": MASK}, "tensor": torch.tensor(0.5)}


def by_hand(weight, k):
    return {name: k * one for name, one in weight.items()} if isinstance(weight, dict) else k * weight


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("k", [2, 3])
def test_it_is_the_loop_that_one_would_write(name, k):
    weight = WEIGHTS[name]
    model, x = NETWORKS["mlp"]()
    ours, theirs = (classic(one, x, weight=weight, fraction=0.5) for one in (model, copy.deepcopy(model)))
    every = Every(ours, k)
    optimisers = [torch.optim.SGD(rr.parameters(), 0.1, momentum=0.9) for rr in (ours, theirs)]
    last = {}
    for i in range(3 * k):
        assert every.step() == (i % k == 0)
        theirs.weight = by_hand(weight, k) if i % k == 0 else 0
        data = x + 0.1 * i
        left, (values, *others) = step(ours, data), step(theirs, data)
        last = values if i % k == 0 else last | values  # the terms are those of the last step that had any
        assert_same(left, Step(last, *others), rtol=0, atol=0)
        for optimiser in optimisers:
            optimiser.step()


@given(k=st.integers(1, 9), start=st.integers(0, 20), weight=st.floats(0.01, 10))
def test_the_mean_loss_over_k_steps(k, start, weight):
    """So the gradient of the loss, which is linear in λ, has the expectation that it has without a schedule."""
    rr, x = small(weight)
    _, alone = rr(x)
    every = Every(rr, k)
    every.load_state_dict({"steps": start})
    losses = []
    for _ in range(k):
        every.step()
        losses.append(rr(x)[1].item())
    assert sum(losses) / k == pytest.approx(alone.item(), rel=1e-5)
    assert sum(loss != 0 for loss in losses) == 1


@pytest.mark.parametrize("k, micro", [(2, 4), (3, 2), (4, 3)])
@pytest.mark.parametrize("before", ["each micro-batch", "each step of the optimiser"])
def test_accumulated_gradients(k, micro, before):
    """On average over the k places where a schedule may stand, they are those without one; and if k divides the number
    of micro-batches, each step of the optimiser makes as many reverse passes."""
    model, x = NETWORKS["mlp"]()
    rr = classic(model.double(), x.double(), weight=0.7)
    batches = [x.double() + i for i in range(micro)]

    def accumulated(every=None):
        rr.zero_grad()
        passes = 0
        for i, batch in enumerate(batches):
            if every is not None and (i == 0 or before == "each micro-batch"):
                every.step()
            output, loss = rr(batch)
            passes += bool(loss > 0)
            ((task(output) + loss) / micro).backward()
        return torch.cat([parameter.grad.flatten() for parameter in rr.parameters()]), passes

    alone, _ = accumulated()
    found, passes = [], []
    for start in range(k):
        every = Every(rr, k)
        every.load_state_dict({"steps": start})
        gradient, count = accumulated(every)
        found.append(gradient)
        passes.append(count)
    torch.testing.assert_close(sum(found) / k, alone)
    if before == "each micro-batch":
        assert max(passes) - min(passes) == (micro % k != 0)
    else:
        assert sorted(passes) == [*[0] * (k - 1), micro]


def test_one_leaves_all_alone():
    model, x = NETWORKS["mlp"]()
    rr = classic(model, x, weight=0.3)
    every, plans = Every(rr, 1), rr._engine.cache.plans
    assert [every.step() for _ in range(3)] == [True] * 3
    assert rr.weight == 0.3
    assert rr._engine.cache.plans is plans
    every.weight = 0.4
    every.step()
    assert rr.weight == every.weight == 0.4


def small(weight=0.5, **settings):
    model, x = NETWORKS["mlp"]()
    return classic(model, x, weight=weight, **settings), x


@pytest.mark.parametrize("place", ["rr", "every"])
@pytest.mark.parametrize("begun", [0, 1, 2, 3])
def test_lambda_can_be_set_in_any_step(place, begun):
    """A new λ holds from the next step on; the schedule multiplies it."""
    rr, x = small()
    every = Every(rr, 3)
    for _ in range(begun):
        every.step()
    (rr if place == "rr" else every).weight = {"*": 2.0, "2": 0}
    expected = classic(rr.model, x, weight={"*": 6.0, "2": 0})(x)[1]
    for _ in range(6):
        on = every.step()
        assert rr.weight == every.weight == {"*": 2.0, "2": 0}
        torch.testing.assert_close(rr(x)[1], expected if on else torch.tensor(0.0))


def test_a_step_without_the_reverse_pass_shows_the_same():
    rr, x = small(mode="full")
    every = Every(rr, 3)
    every.step()
    rr(x)
    plan, terms, rebuilt = str(rr.plan), dict(rr.terms), rr.reconstruct(x)
    assert len(terms) == 3
    for _ in range(2):
        assert not every.step()
        assert rr(x)[1] == 0
        assert str(rr.plan) == plan
        assert rr.terms == terms
        torch.testing.assert_close(rr.reconstruct(x), rebuilt, rtol=0, atol=0)


COPIES = {"pickled": lambda rr: pickle.loads(pickle.dumps(rr)), "copied": copy.deepcopy}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("begun", [1, 2])
def test_a_copy_keeps_lambda_and_has_no_schedule(name, begun):
    rr, x = small(0.5)
    _, loss = rr(x)
    every = Every(rr, 3)
    for _ in range(begun):
        every.step()
    other = COPIES[name](rr)
    assert other.weight == 0.5
    torch.testing.assert_close(other(x)[1], loss)
    torch.testing.assert_close(rr(x)[1], 3 * loss if begun == 1 else torch.tensor(0.0))  # its own goes on


def test_a_resumed_training_goes_on_in_step():
    model, x = NETWORKS["mlp"]()
    first, second = (Every(classic(model, x), 3) for _ in range(2))
    pattern = [first.step() for _ in range(12)]
    for _ in range(5):
        second.step()
    third = Every(classic(model, x), 3)
    third.load_state_dict(second.state_dict())
    assert [third.step() for _ in range(7)] == pattern[5:]


@pytest.mark.parametrize("name", WEIGHTS)
def test_nothing_is_worked_out_twice_and_nothing_waits(name):
    model, x = NETWORKS["mlp"]()
    rr = classic(model, x, weight=WEIGHTS[name])
    every = Every(rr, 2)
    every.step()
    every.step()

    def steps():
        for _ in range(6):
            every.step()

    with (
        patch.object(engine, "PreparedPlan", side_effect=AssertionError),
        patch.object(eager_step, "layer_graph_of", side_effect=AssertionError),
    ):
        assert witness(steps) == {}


def test_a_way_that_is_found_later():
    """A new way through the model is planned once, in whichever step it first occurs."""
    model, x = NETWORKS["vgg"]()
    rr = classic(model, x)
    every = Every(rr, 2)
    every.step()
    rr.eval()
    rr(x)
    for _ in range(4):
        on = every.step()
        _, loss = rr(x)
        assert bool(loss > 0) == on


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Schedules of other kinds of weights: reverse/test_compile.py
@pytest.mark.parametrize("name", ["number", pytest.param("features", marks=pytest.mark.soak)])
@pytest.mark.usefixtures("fresh")
def test_two_graphs_and_no_third(name):
    model, x = NETWORKS["mlp"]()
    eager, rr = (classic(one, x, weight=WEIGHTS[name], fraction=0.5) for one in (copy.deepcopy(model), model))
    every, slow = Every(rr, 3), Every(eager, 3)
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    for i in range(20):
        assert every.step() == slow.step()
        if i == 12 and name == "number":
            every.weight = slow.weight = 0.1
        with torch._dynamo.config.patch(error_on_recompile=i > 2):
            assert_same(step(rr, x, fast), step(eager, x))
