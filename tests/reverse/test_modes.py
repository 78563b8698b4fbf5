"""The reverse pass of each mode, where modes refuse a model, and the effect of weight 0."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from racecar import NotReversible
from tests.by_hand import Net, close, squares, undo_linear
from tests.losses import classic
from tests.reverse.mode_cases import FORWARD, REVERSE, linears, rows


def chain() -> Net:
    return Net(lambda m, x: m.c(torch.tanh(m.b(torch.tanh(m.a(x))))), **linears(a=(4, 6), b=(6, 5), c=(5, 3)))


def pooled() -> Net:
    """Max pooling counts as unique."""

    def forward(m, x):
        h = torch.relu(m.a(x[:, None]))
        return m.b(torch.max_pool1d(h, 2).flatten(1))

    return Net(forward, a=nn.Conv1d(1, 3, 3, padding=1).double(), **linears(b=(6, 3)))


def heads() -> Net:
    """A fork, no join."""

    def forward(m, x):
        h = torch.tanh(m.b(torch.tanh(m.a(x))))
        return m.c(h), m.d(h)

    return Net(forward, **linears(a=(4, 6), b=(6, 5), c=(5, 3), d=(5, 2)))


def logged() -> Net:
    """A tensor that more than one operation uses is a fork, whatever comes of it."""

    def forward(m, x):
        h = torch.tanh(m.a(x))
        return m.b(h), h.abs().mean()

    return Net(forward, **linears(a=(4, 6), b=(6, 3)))


def returned() -> Net:
    """Returning a tensor is no operation."""
    return Net(lambda m, x: (m.b(h := torch.tanh(m.a(x))), h), **linears(a=(4, 6), b=(6, 3)))


def join(how: Callable[[Tensor, Tensor], Tensor], width: int = 6) -> Net:
    def forward(m, x):
        h = torch.tanh(m.a(x))
        y = m.c(torch.tanh(m.b(h)))
        return m.head(torch.tanh(how(y, h)))

    return Net(forward, **linears(a=(4, 6), b=(6, 5), c=(5, 6), head=(width, 3)))


def residual() -> Net:
    return join(lambda y, h: y + h)


def in_place_residual() -> Net:
    return join(lambda y, h: y.add_(h))


def concatenation() -> Net:
    return join(lambda y, h: torch.cat([y, h], 1), 12)


def gating() -> Net:
    return join(lambda y, h: y * torch.sigmoid(h))


def attention() -> Net:
    return join(lambda y, h: torch.softmax(y @ h.T, -1) @ h)


def last_join() -> Net:
    """The join stands after the last layer."""
    return Net(lambda m, x: x + m.b(torch.tanh(m.a(x))), **linears(a=(4, 6), b=(6, 4)))


def two_inputs() -> Net:
    return Net(lambda m, x, y: m.b(torch.tanh(m.a(x + y))), **linears(a=(4, 6), b=(6, 3)))


def inputs_of(build: Callable[[], Net]) -> tuple[Tensor, ...]:
    return (rows(), rows().flip(0)) if build is two_inputs else (rows(),)


# --- where each layer starts ----------------------------------------------------------------------------------------


JOINED = {"a": FORWARD, "b": REVERSE, "c": FORWARD, "head": FORWARD}  # a forks, c meets the join, head is last

SOURCES: list[tuple[Callable[[], Net], str, dict[str, str]]] = [
    (chain, "auto", {"a": REVERSE, "b": REVERSE, "c": FORWARD}),
    (chain, "full", {"a": REVERSE, "b": REVERSE, "c": FORWARD}),
    (chain, "input", {"a": REVERSE, "b": REVERSE, "c": FORWARD}),
    (chain, "layerwise", dict.fromkeys("abc", FORWARD)),
    (pooled, "auto", {"a": REVERSE, "b": FORWARD}),
    (heads, "auto", {"a": REVERSE, "b": FORWARD, "c": FORWARD, "d": FORWARD}),
    (logged, "auto", {"a": FORWARD, "b": FORWARD}),
    (returned, "auto", {"a": REVERSE, "b": FORWARD}),
    (heads, "layerwise", dict.fromkeys("abcd", FORWARD)),
    (last_join, "full", {"a": REVERSE, "b": FORWARD}),
    (last_join, "auto", {"a": REVERSE, "b": FORWARD}),
    (two_inputs, "auto", {"a": REVERSE, "b": FORWARD}),
    *((build, "auto", JOINED) for build in (residual, in_place_residual, concatenation, gating, attention)),
    (residual, "layerwise", dict.fromkeys(JOINED, FORWARD)),
]


@pytest.mark.parametrize("build, mode, sources", SOURCES)
def test_sources(build: Callable[[], Net], mode: str, sources: dict[str, str]):
    model = build()
    rr = classic(model, inputs_of(build), mode=mode)
    assert {entry.name: entry.source for entry in rr.plan} == sources
    constrained = [entry.name for entry in rr.plan if entry.constrained]
    assert constrained == (["a"] if mode == "input" else list(sources))
    for entry in rr.plan:
        assert entry.kind in ("linear", "conv1d")
        assert entry.constrained or entry.reason
    rr(*inputs_of(build))
    assert list(rr.terms) == constrained


def test_full_follows_one_way_across_a_fork():
    """A fork alone does not make it refuse: the reverse pass is that of the last layer with a weight."""
    model, x = heads(), rows()
    rr = classic(model, x, mode="full", scale="sum", weight={"*": 1, "d": 0})
    d2 = torch.tanh(model.a(x))
    d3 = torch.tanh(model.b(d2))
    back = torch.tanh(undo_linear(model.c, model.c(d3)))
    rr(x)
    close(rr.terms["c"], squares(d3 - back).detach())
    back = torch.tanh(undo_linear(model.b, back))
    close(rr.terms["b"], squares(d2 - back).detach())
    close(rr.terms["a"], squares(x - undo_linear(model.a, back)).detach())
    assert list(rr.terms) == ["a", "b", "c"]
    with pytest.warns(UserWarning, match=r"'d'.*\('c'\) are compared by themselves.*mode='auto'.*weight 0"):
        rr.weight = 1
    both = {entry.name: entry.source for entry in rr.plan}
    assert (both["a"], both["b"], both["d"]) == (REVERSE, REVERSE, FORWARD)


def deep_heads(joined: bool = False) -> Net:
    def forward(m, x):
        h = torch.tanh(m.a(x))
        left, right = m.c(torch.tanh(m.b(h))), m.e(torch.tanh(m.d(h)))
        return left * right if joined else (left, right)

    return Net(forward, **linears(a=(4, 6), b=(6, 5), c=(5, 3), d=(6, 4), e=(4, 3)))


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("mode", ["full", "input"])
def test_another_head_than_the_last_is_named(mode: str, joined: bool):
    """In the plan and by a warning, once; not where it has weight 0 or is frozen."""
    model, x = deep_heads(joined), rows()
    with pytest.warns(UserWarning, match=rf"mode '{mode}'.*'e'.*\('b', 'c'\)") as caught:
        rr = classic(model, x, mode=mode)
    assert len(caught) == 1
    beside = {entry.name: entry.constrained for entry in rr.plan if "not on the path: it starts at e" in entry.reason}
    assert beside == dict.fromkeys("bc", mode == "full")
    rr.weight = 2.0
    assert rr(x)[1] > 0
    for weight in ({"*": 1, "[bc]": 0}, {"*": 1, "[de]": 0}):
        rr.weight = weight
        assert "not on the path" not in str(rr.plan)
    model.b.requires_grad_(False), model.c.requires_grad_(False)
    assert "not on the path" not in str(classic(model, x, mode="full").plan)


def test_towers_without_a_common_layer():
    """In mode full nothing is lost; mode input compares the input of one of them."""
    parts = linears(a=(4, 5), b=(5, 3), c=(4, 6), d=(6, 3))
    model = Net(lambda m, x, y: (m.b(torch.tanh(m.a(x))), m.d(torch.tanh(m.c(y)))), **parts)
    assert "not on the path" not in str(classic(model, (rows(), rows()), mode="full").plan)
    with pytest.warns(UserWarning, match=r"\('a', 'b'\) are ignored"):
        classic(model, (rows(), rows()), mode="input")


# --- refusing -------------------------------------------------------------------------------------------------------


PLACES = {
    residual: "add",
    in_place_residual: "add",
    concatenation: "cat",
    gating: "mul",
    attention: "matmul",
    two_inputs: "add",
}


@pytest.mark.parametrize("mode", ["full", "input"])
@pytest.mark.parametrize("build", PLACES, ids=lambda build: build.__name__)
def test_a_join_is_refused_at_construction(build: Callable[[], Net], mode: str):
    with pytest.raises(NotReversible) as caught:
        classic(build(), inputs_of(build), mode=mode)
    message = str(caught.value)
    assert repr(mode) in message
    assert PLACES[build] in message
    assert "auto" in message or "layerwise" in message
    if build is not two_inputs:
        assert "'c'" in message or "'b'" in message or "'a'" in message, "the place: near which layer"
    assert "\n" not in message


@pytest.mark.parametrize("mode", ["full", "input"])
def test_a_join_after_the_last_constrained_layer_is_fine(mode: str):
    model, x = residual(), rows()
    rr = classic(model, x, mode=mode, scale="sum", weight={"*": 1, "head": 0})
    h = torch.tanh(model.a(x))
    back = torch.tanh(undo_linear(model.c, model.c(torch.tanh(model.b(h)))))
    back = torch.tanh(undo_linear(model.b, back))
    rr(x)
    close(rr.terms["a"], squares(x - undo_linear(model.a, back)).detach())
    assert list(rr.terms) == (["a"] if mode == "input" else ["a", "b", "c"])


def test_a_weight_that_moves_the_end_behind_a_join_is_refused_too():
    model, x = residual(), rows()
    rr = classic(model, x, mode="full", weight={"*": 1, "head": 0})
    with pytest.raises(NotReversible, match="add"):
        rr.weight = 1
    assert rr.weight == {"*": 1, "head": 0}
    rr(x)


# --- weight 0 -------------------------------------------------------------------------------------------------------


def by_hand(model: Net, x: Tensor, last: str) -> dict[str, Tensor]:
    """d' of `chain`, starting at the output of `last`."""
    d2 = torch.tanh(model.a(x))
    d3 = torch.tanh(model.b(d2))
    ds = {"a": x, "b": d2, "c": d3}
    start, back = {"a": d2, "b": d3, "c": model.c(d3)}[last], {}
    for name in "cba"["cba".index(last) :]:
        start = undo_linear(getattr(model, name), start)
        start = start if name == "a" else torch.tanh(start)
        back[name] = start
    return {name: squares(ds[name] - one).detach() for name, one in back.items()} | {"rebuilt": back}


@pytest.mark.parametrize("mode", ["auto", "full"])
def test_a_middle_layer_with_weight_0_is_passed_through(mode: str):
    model, x = chain(), rows()
    rr = classic(model, x, mode=mode, scale="sum", weight={"*": 1, "b": 0})
    rr(x)
    expected = by_hand(model, x, "c")
    close(rr.terms, {name: expected[name] for name in "ac"})
    assert [entry.constrained for entry in rr.plan] == [True, False, True]
    assert "0" in list(rr.plan)[1].reason
    close(rr.reconstruct(x)[1], expected["rebuilt"]["b"].detach())


@pytest.mark.parametrize("mode", ["auto", "full", "input"])
@pytest.mark.parametrize("last", ["a", "b"])
def test_trailing_layers_with_weight_0_are_not_passed(mode: str, last: str):
    """In mode "input" too: the way starts at the last layer whose weight is not 0."""
    model, x = chain(), rows()
    weight = {"*": 1, "c": 0} if last == "b" else {"a": 1}
    rr = classic(model, x, mode=mode, scale="sum", weight=weight)
    rr(x)
    expected = by_hand(model, x, last)
    names = ["a"] if mode == "input" else ["a", "b"][: 1 + (last == "b")]
    close(rr.terms, {name: expected[name] for name in names})
    made = rr.reconstruct(x)
    assert [one is not None for one in made] == [True, last == "b", False]
    head = list(rr.plan)[2]
    assert not head.constrained
    assert head.reason


def test_a_trailing_layer_with_weight_0_feels_no_gradient():
    model, x = chain(), rows()
    classic(model, x, weight={"*": 1, "c": 0})(x)[1].backward()
    assert model.c.weight.grad is None
    assert model.b.weight.grad.abs().max() > 0
