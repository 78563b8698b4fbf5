"""A call that takes another way through the model is planned anew, once for every way."""

import copy
import random

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.by_hand import Net
from tests.losses import classic
from tests.networks import NETWORKS, rows, seeded, sequence
from tests.steps import assert_same, step


def linears(**widths):
    return {name: nn.Linear(*pair) for name, pair in widths.items()}


def one_of_two(m, x, wrap=lambda h: h):
    """`left` or `right`: the same functions, other weights."""
    middle = m.left if x.mean() > 0 else m.right
    return m.last(torch.relu(wrap(middle(torch.relu(m.first(x))))))


def twins(change=lambda layer: layer, **extra):
    parts = linears(first=(6, 8), left=(8, 8), right=(8, 8), last=(8, 3)) | extra
    return {name: change(part) if name in ("left", "right") else part for name, part in parts.items()}


def own_norms(m, x):
    return one_of_two(m, x, wrap=lambda h: m.slope1(m.norm1(h)) if x.mean() > 0 else m.slope2(m.norm2(h)))


def in_place(m, x):
    """Each branch changes other activations in place that the reverse pass needs; and dropout."""
    h = m.drop(torch.relu(m.first(x)))
    if x.mean() > 0:
        k = m.left(h)
    else:
        h = torch.tanh(m.left(h))
        k = m.right(h)
    k += h
    return m.last(k.relu_())


def swapped(m, x):
    """x − c or c − x by the same function."""
    h = torch.relu(m.first(x))
    return m.last(torch.relu(m.left(torch.sub(h, m.c) if x.mean() > 0 else torch.sub(m.c, h))))


def turned(m, x):
    """The batch of 4 × 4 × 4 is at another place of the same function's result."""
    h = torch.tanh(m.first(x))
    return m.last(h.transpose(1, 2) if x.mean() > 0 else h.transpose(0, 1))


def square():
    return Net(turned, **linears(first=(4, 4), last=(4, 3))), torch.rand(4, 4, 4)


norms = {"norm1": nn.BatchNorm1d(8), "norm2": nn.BatchNorm1d(8), "slope1": nn.PReLU(8), "slope2": nn.PReLU(8, init=0.7)}
# Models whose branch is chosen by the sign of the mean of their input.
BRANCHES = {
    "branching": NETWORKS["branching"],
    "same functions": seeded(lambda: (Net(one_of_two, **twins()), rows().abs())),
    "same functions, parametrised": seeded(lambda: (Net(one_of_two, **twins(weight_norm)), rows().abs())),
    "same functions, own norms": seeded(lambda: (Net(own_norms, **twins(), **copy.deepcopy(norms)), rows().abs())),
    "in place": seeded(lambda: (Net(in_place, **twins(), drop=nn.Dropout(0.5)), rows().abs())),
    "swapped": seeded(lambda: (Net(swapped, **twins(), c=nn.Parameter(torch.rand(8))), rows().abs())),
    "turned": seeded(square),
}
WEIGHT = {"*": 1, "left*": 0.5, "right*": 2.0}


def expected(model, inputs, **settings):
    """A Racecar that saw nothing else."""
    return step(classic(copy.deepcopy(model), inputs, **settings), inputs)


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_another_branch(name, fraction):
    model, x = BRANCHES[name]()
    weight = WEIGHT if hasattr(model, "right") else 1.0
    rr = classic(copy.deepcopy(model), x, fraction=fraction, weight=weight)
    alone = {sign: expected(model, sign * x, fraction=fraction, weight=weight) for sign in (1, -1)}
    begin = classic(model, x).state_dict()
    for sign in (1, -1, -1, 1, 1, -1):
        rr.load_state_dict(begin)
        rr.reverse_statistics.reset()
        made = step(rr, sign * x)
        assert_same(made, alone[sign])
        assert [entry.name for entry in rr.plan if entry.constrained] == list(rr.terms)
    assert any(not torch.equal(alone[1].values[key], alone[-1].values.get(key)) for key in alone[1].values)


@pytest.mark.parametrize("name", BRANCHES)
def test_a_way_is_planned_once(name):
    """Once both ways are planned, a call runs the model a single time."""
    model, x = BRANCHES[name]()
    rr = classic(model, x)
    runs = []
    model.register_forward_pre_hook(lambda *_: runs.append(1))
    for sign in (1, -1):
        rr(sign * x)
    runs.clear()
    for i, sign in enumerate((-1, 1, 1, -1, 1), 1):
        rr(sign * x)
        assert len(runs) == i


ARGUMENTS = {
    "without the mask": {"x": rows(), "scale": 0.5},
    "without the scale": {"x": rows(), "mask": torch.ones(4, 8)},
    "another scale": {"x": rows(), "mask": torch.ones(4, 8), "scale": 3.0},
    "a larger batch": {"x": torch.randn(9, 6), "mask": torch.rand(9, 8)},
    "one sample": {"x": torch.randn(1, 6)},
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_other_arguments(name, fraction):
    model, first = NETWORKS["keyword_inputs"]()
    rr = classic(model, first, fraction=fraction)
    for inputs in (ARGUMENTS[name], first, ARGUMENTS[name]):
        assert_same(step(rr, inputs), expected(model, inputs, fraction=fraction))


def test_positional_or_by_name():
    model, (image, table) = NETWORKS["two_inputs"]()
    rr = classic(model, (image, table))
    _, loss = rr(image, table)
    for args, kwargs in (((image,), {"table": table}), ((), {"table": table, "image": image})):
        torch.testing.assert_close(rr(*args, **kwargs)[1], loss)


def rows_of_steps(m, x):
    """(N, T, C) → (T·N, C): a sample's rows stand T apart."""
    return m.last(torch.tanh(m.first(x.transpose(0, 1).reshape(-1, 5)))).view(x.shape[1], len(x), -1)


LENGTHS = {
    "rows of steps": seeded(lambda: (Net(rows_of_steps, **linears(first=(5, 8), last=(8, 3))), sequence(5))),
    **{name: NETWORKS[name] for name in ("text", "language_model", "scaled_dot_product", "encoder", "attention")},
    "gated_fused": NETWORKS["gated_fused"],
}


@pytest.mark.parametrize(
    "name, fraction, planned", [*((name, 0.5, 1) for name in LENGTHS), ("rows of steps", 0.5, 5), ("text", 1.0, 5)]
)
def test_other_lengths(name, fraction, planned):
    """One plan for all of them: every call runs the model once."""
    model, x = LENGTHS[name]()
    rr = classic(model.eval(), x[:, :planned], fraction=fraction)
    longer = torch.cat([x, x.flip(1)[:, :4]], 1)
    runs = []
    for data in (longer, x[:, :2], torch.cat([longer, longer]), x, x[:1]):
        with model.register_forward_pre_hook(lambda *_: runs.append(1)):
            made = step(rr, data)
        assert_same(made, expected(model, data, fraction=fraction))
    assert len(runs) == 5


def test_many_ways(monkeypatch):
    """The oldest plans are dropped, and one warning says what that costs."""
    monkeypatch.setattr("racecar.reverse.plan_cache.MAX_PLANS", 2)
    model = Net(lambda m, x, times: [x := m.a(x) for _ in range(times)][-1], a=nn.Linear(6, 6))
    rr = classic(model, (rows(), 1))
    rr(rows(), 2)
    with pytest.warns(UserWarning, match="2 branches of Net.*dropped.*another forward pass"):
        rr(rows(), 3)
    for times in (1, 2, 3):
        rr(rows(), times)
        assert len(rr.plan) == len(rr.terms) == times


class LayerDrop(nn.Module):
    """Residual blocks that are left out at random; `drawn` says which, in all calls since it was emptied."""

    def __init__(self, draw, in_place):
        super().__init__()
        self.draw, self.in_place, self.fixed, self.drawn = draw, in_place, None, []
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        self.drawn.append(self.fixed or [self.draw() < 0.5 for _ in self.blocks])
        x = self.first(x)
        for block, left_out in zip(self.blocks, self.drawn[-1], strict=True):
            if not left_out:
                y = block(x)
                x = torch.relu(y.add_(x) if self.in_place else y + x)
        return self.last(torch.tanh(x))


DRAW = {"torch": lambda: float(torch.rand(())), "python": random.random}


@pytest.mark.parametrize("source", DRAW)
@pytest.mark.parametrize("in_place", [False, True])
def test_a_random_way(source, in_place):
    torch.manual_seed(0)
    random.seed(0)
    model, x = LayerDrop(DRAW[source], in_place), rows()
    rr = classic(model, x)
    seen = set()
    for _ in range(10):
        model.drawn.clear()
        state = torch.get_rng_state()
        rr.zero_grad()
        output, loss = rr(x)
        loss.backward()
        drawn = model.drawn[0]  # the call itself; the others are for planning
        fixed = copy.deepcopy(model)
        fixed.fixed = drawn
        other = classic(fixed, x)
        torch.testing.assert_close((output, loss), other(x))
        assert [f"blocks.{i}" in rr.terms for i in range(3)] == [not left_out for left_out in drawn]
        grads = torch.autograd.grad(other(x)[1], list(fixed.parameters()), allow_unused=True)
        torch.testing.assert_close([p.grad for p in model.parameters()], list(grads))
        if source == "torch":
            after = torch.get_rng_state()
            torch.set_rng_state(state)
            model(x)
            assert torch.equal(torch.get_rng_state(), after)
        seen.add(tuple(drawn))
    assert len(seen) > 3


# --- torch.compile ----------------------------------------------------------------------------------------------


def switched(m, x, other=False):
    """`other`: another branch with other functions; 2: the same functions with another weight."""
    if other == 1:
        return m.last(torch.tanh(m.left(torch.tanh(m.left(x)))))
    return m.last(torch.relu((m.right if other else m.left)(x)))


@pytest.mark.soak
def test_compile_tells_of_a_way_without_plan():
    """The same functions with another weight are another way: it has another name and another λ."""
    torch._dynamo.reset()
    x, names = rows(), {0: ["left", "last"], 1: ["left", "left#2", "last"], 2: ["right", "last"]}
    rr = classic(Net(switched, **linears(left=(6, 6), right=(6, 6), last=(6, 3))), x, weight=WEIGHT)
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    torch.testing.assert_close(fast(x), rr(x))
    assert list(rr.terms) == names[0]
    for other in (1, 2):
        with pytest.raises(Exception, match="no plan yet.*breaks the graph.*call the uncompiled Racecar once"):
            fast(x, other)
    expected = {other: rr(x, other) for other in (1, 2)}
    torch._dynamo.reset()
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    for other in (1, 2):
        torch.testing.assert_close(fast(x, other), expected[other])
        assert list(rr.terms) == names[other]


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not")  # dynamo's own, at a graph break
def test_data_dependent_branches_without_fullgraph():
    torch._dynamo.reset()
    model, x = NETWORKS["branching"]()
    rr = classic(model, x)
    rr(-x)
    fast = torch.compile(rr, backend="eager")
    for data in (x, -x, x):
        torch.testing.assert_close(fast(data), rr(data))


@pytest.mark.soak
@pytest.mark.parametrize("name, width, fraction", [("scaled_dot_product", 8, 1.0), ("rows of steps", 5, 0.5)])
def test_sequence_of_another_length_under_compile(name, width, fraction):
    """And batches of other sizes."""
    torch._dynamo.reset()
    model, x = LENGTHS[name]()
    rr = classic(model, x, fraction=fraction)
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    for data in (x, torch.cat([sequence(width, 9)] * 2)[:5], sequence(width, 3)):
        assert_same(step(rr, data, fast), step(rr, data), rtol=1e-4, atol=1e-5)
