"""Parts of a model that run under no_grad, and detached weights, are left out as if frozen."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from racecar import NothingToReverse, Racecar
from tests.by_hand import Net
from tests.losses import classic
from tests.pairwise import pairwise
from tests.steps import assert_same, step

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def probe(context=torch.no_grad):
    """A backbone without gradient and a head; ``context`` can be set later."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 6), nn.BatchNorm1d(6))
    return Net(_probe, backbone=backbone, hidden=nn.Linear(6, 6), head=nn.Linear(6, 3), context=context)


def _probe(m, x):
    with m.context():
        h = torch.relu(m.backbone(x))
    return m.head(torch.relu(m.hidden(h.clone())))  # torch itself needs the copy after inference mode


def frozen():
    model = probe(nullcontext)
    model.backbone.requires_grad_(False)
    return model


def notes(rr: Racecar) -> dict[str, str]:
    return {entry.name: entry.reason.removesuffix(", passed through") for entry in rr.plan if not entry.constrained}


CONTEXTS = [torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)]
MODES, GRADIENTS = ["layerwise", "auto", "full", "input"], ["reverse", "both", "weights"]


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("mode, gradient, context", pairwise(MODES, GRADIENTS, CONTEXTS))
def test_as_if_frozen(context, mode, gradient, fraction):
    settings = {"mode": mode, "gradient": gradient, "fraction": fraction}
    rr = classic(probe(context), X, **settings)
    made = step(rr, X)
    assert_same(made, step(classic(frozen(), X, **settings), X))
    assert not any("backbone" in name and grad is not None for name, grad in made.grads.items())
    assert {name: why for name, why in notes(rr).items() if why == "no_grad"} == (
        {} if mode == "input" else {"backbone.0": "no_grad", "backbone.3": "no_grad"}
    )


def test_a_teacher_does_not_move():
    """Of the same class as its student, whose weights it has."""
    model = Net(_distil, student=nn.Linear(4, 4), teacher=nn.Linear(4, 4), head=nn.Linear(4, 4))
    before = copy.deepcopy(model.state_dict())
    rr = Racecar(model, X, weight=0.1)
    optimizer = torch.optim.Adam(rr.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        output, loss = rr(X)
        (output + loss).backward()
        optimizer.step()
    moved = {name.partition(".")[0] for name, one in model.state_dict().items() if not torch.equal(one, before[name])}
    assert moved == {"student", "head"}
    assert list(rr.terms) == ["student", "head"]
    assert notes(rr) == {"teacher": "no_grad", "head#2": "no_grad"}


def _distil(m, x):
    guess = m.head(torch.tanh(m.student(x)))
    with torch.no_grad():
        target = m.head(torch.tanh(m.teacher(x)))
    return F.mse_loss(guess, target)


class Cut(nn.Module):
    def forward(self, weight):
        return weight.detach()


def computed(m, x):
    with torch.no_grad():
        weight = 2 * m.a.weight
    return F.linear(x, weight, m.a.bias)


def called_with(m, x):
    return torch.func.functional_call(m.a, {name: one.detach() for name, one in m.a.named_parameters()}, (x,))


def parametrised():
    layer = nn.Linear(4, 5)
    parametrize.register_parametrization(layer, "weight", Cut())
    return layer


DETACHED = {
    "detach": (lambda m, x: F.linear(x, m.a.weight.detach(), m.a.bias), lambda: nn.Linear(4, 5)),
    "data": (lambda m, x: F.linear(x, m.a.weight.data, m.a.bias), lambda: nn.Linear(4, 5)),
    "matmul": (lambda m, x: x @ m.a.weight.t().detach() + m.a.bias, lambda: nn.Linear(4, 5)),
    "computed under no_grad": (computed, lambda: nn.Linear(4, 5)),
    "functional_call": (called_with, lambda: nn.Linear(4, 5)),
    "parametrised": (lambda m, x: m.a(x), parametrised),
    "experts": (lambda m, x: m.a(x, lambda weight: weight.detach()), lambda: Experts()),
}


class Experts(nn.Module):
    """One of two weights, by the data."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 5, 4))

    def forward(self, x, change):
        return F.linear(x, change(self.weight[(x.sum() > 0).long()]))


@pytest.mark.parametrize("mode", ["layerwise", "auto"])
@pytest.mark.parametrize("name", DETACHED)
def test_detached_weights(name, mode):
    way, build = DETACHED[name]
    torch.manual_seed(0)
    model = Net(lambda m, x: m.b(torch.tanh(way(m, x))), a=build(), b=nn.Linear(5, 3))
    other = copy.deepcopy(model)
    weight = dict(other.a.named_parameters()).get("weight")
    (other.a.parametrizations.weight.original if weight is None else weight).requires_grad_(False)
    rr = classic(model, X, mode=mode)
    ours, theirs = step(rr, X), step(classic(other, X, mode=mode), X)
    assert_same(ours, theirs)
    assert list(notes(rr).items()) == [("a", "detached")]


@pytest.mark.parametrize("cut", [("base",), ("down", "up"), ("base", "down", "up")])
def test_a_sum_is_left_out_if_all_of_it_is(cut):
    """If only a part is cut off, the sum is one layer whose other weights are trained."""

    def forward(m, x):
        with torch.no_grad() if "base" in cut else nullcontext():
            base = m.base(x)
        with torch.no_grad() if "up" in cut else nullcontext():
            more = m.up(m.down(x))
        return m.last(torch.tanh(base + more))

    parts = {"base": nn.Linear(4, 5), "down": nn.Linear(4, 1), "up": nn.Linear(1, 5), "last": nn.Linear(5, 3)}
    rr = classic(Net(forward, **parts), X)
    assert rr.plan[0].kind == "sum of linear"
    assert notes(rr) == ({"base": "no_grad"} if len(cut) == 3 else {})
    rr(X)[1].backward()
    assert {name for name, part in parts.items() if part.weight.grad is None} == set(cut)


def test_every_call_anew():
    """Each way is planned once, and a pass without gradient takes the last one."""
    rr = classic(probe(), X)
    fresh = {context: step(classic(probe(context), X), X) for context in (torch.no_grad, nullcontext)}
    start = rr.state_dict()
    runs = []
    for i, context in enumerate([torch.no_grad, nullcontext, torch.no_grad, nullcontext, nullcontext]):
        rr.model.context = context
        rr.load_state_dict(copy.deepcopy(start)), rr.reverse_statistics.reset()
        if i == 2:
            rr.model.register_forward_pre_hook(lambda *_: runs.append(1))
        torch.testing.assert_close(step(rr, X)[:2], fresh[context][:2])
    assert len(runs) == 3
    with torch.no_grad():
        rr(X)
    assert list(rr.terms) == ["backbone.0", "backbone.3", "hidden", "head"]


def test_detached_at_times():
    model = Net(_at_times, a=parametrizations.weight_norm(nn.Linear(4, 5)), b=nn.Linear(5, 3), cut=False)
    rr = Racecar(model, X)
    for cut in (True, False, True):
        model.cut = cut
        rr(X)
        assert notes(rr) == ({"a": "detached"} if cut else {})


def _at_times(m, x):
    weight = m.a.weight.detach() if m.cut else m.a.weight
    return m.b(torch.tanh(F.linear(x, weight)))


@pytest.mark.parametrize("outer", [torch.no_grad, torch.inference_mode])
def test_a_pass_without_gradient_has_the_same_plan(outer):
    """Also if it is the first one; and all is rebuilt, what has no term too."""
    model = probe()
    with outer():
        rr = classic(model, X, mode="full").eval()
        plan = str(rr.plan)
        _, loss = rr(X)
        terms, rebuilt = dict(rr.terms), rr.reconstruct(X)
    other = classic(frozen(), X, mode="full").eval()
    assert (str(rr.plan), loss) == (plan, other(X)[1])
    assert terms == other.terms
    for ours, theirs in zip(rebuilt, other.reconstruct(X), strict=True):
        assert torch.equal(ours, theirs)
    assert all(torch.equal(a, b) for a, b in zip(rr.reconstruct(X, grad=True), rebuilt, strict=True))


@pytest.mark.soak
def test_compiled():
    torch._dynamo.reset()
    rr, plain = (classic(probe(), X, mode="full") for _ in range(2))
    fast = torch.compile(rr, backend="aot_eager", fullgraph=True)
    for rr_ in (rr, plain):
        rr_.model.context = nullcontext
        rr_(X)
        rr_.reverse_statistics.reset()
    for context in (torch.no_grad, nullcontext):
        results = []
        for call, owner in ((fast, rr), (plain, plain)):
            owner.model.context = context
            owner.zero_grad()
            _, loss = call(X)
            loss.backward()
            results.append((loss, [one.grad for one in owner.parameters()]))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        assert (results[0][1][0] is None) == (context is torch.no_grad)
    torch._dynamo.reset()


def test_torch_func():
    model = Net(_distil, student=nn.Linear(4, 4), teacher=nn.Linear(4, 4), head=nn.Linear(4, 4))
    rr = Racecar(model, X, weight=1.0)
    values = {name: one.detach() for name, one in rr.named_parameters()}
    stacked = {name: torch.stack([one, 2 * one]) for name, one in values.items()}

    def loss(some):
        return torch.func.functional_call(rr, some, (X,))[1]

    grads = torch.vmap(torch.func.grad(loss))(stacked)
    rr(X)[1].backward()
    for name, one in rr.named_parameters():
        if "teacher" in name:
            assert not grads[name].any()
            assert one.grad is None
        else:
            torch.testing.assert_close(grads[name][0], one.grad)


def test_checkpointed():
    def through(m, x):
        return torch.utils.checkpoint.checkpoint(_probe, m, x, use_reentrant=False)

    model = probe()
    saving = Net(through, **dict(model.named_children()), context=torch.no_grad)
    ours, theirs = step(classic(copy.deepcopy(saving), X), X), step(classic(model, X), X)
    torch.testing.assert_close(ours[:2], theirs[:2])  # batch norm counts the batch twice


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_rule_for_a_module(compiled):
    """It takes the weights of its module, which are constants there."""

    class Mine(nn.Linear):
        pass

    def forward(m, x):
        h = torch.tanh(m.a(x))
        with m.context():
            h = torch.tanh(m.b(h))
        return m.c(h)

    rule = {Mine: lambda op, y, shape: (y - op.module.bias) @ op.module.weight}
    parts = {"a": nn.Linear(4, 5), "b": Mine(5, 6), "c": nn.Linear(6, 3)}
    model = Net(forward, **parts, context=torch.no_grad)
    other = copy.deepcopy(model)
    other.context = nullcontext
    other.b.requires_grad_(False)
    rr = classic(model, X, mode="full", rules=rule)
    frozen = classic(other, X, mode="full", rules=rule)
    torch._dynamo.reset()
    _, loss = (torch.compile(rr, backend="eager", fullgraph=True) if compiled else rr)(X)
    loss.backward()
    torch.testing.assert_close(loss, frozen(X)[1])
    assert [one.grad is None for one in model.b.parameters()] == [True, True]
    assert all(isinstance(one, nn.Parameter) for one in model.b.parameters())
    assert notes(rr) == {"b": "no_grad"}
    torch._dynamo.reset()


def test_all_of_it():
    model = probe()
    model.hidden.requires_grad_(False), model.head.requires_grad_(False)
    with pytest.raises(NothingToReverse, match="frozen .* or runs under no_grad"):
        Racecar(model, X)
