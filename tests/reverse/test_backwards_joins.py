"""`rr.reverse(y)` at joins: it names the place and what is missing, and goes on with what is given."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import NotReversible, Racecar
from tests.by_hand import Net, undo_conv, undo_linear
from tests.networks import NETWORKS, call
from tests.rules.common import chain, close, random


class Block(nn.Module):
    """A residual block with norms, and a shortcut with a weight if the width changes."""

    def __init__(self, width, out):
        super().__init__()
        self.a, self.norm, self.b = (
            nn.Conv2d(width, out, 3, padding=1),
            nn.GroupNorm(1, out),
            nn.Conv2d(out, out, 3, padding=1),
        )
        self.shortcut = nn.Conv2d(width, out, 1) if out != width else None

    def forward(self, x):
        way = self.b(F.relu(self.norm(self.a(x))))
        way += x if self.shortcut is None else self.shortcut(x)  # the shortcut is called last
        return F.relu(way)


def residual():
    return chain(nn.Conv2d(1, 3, 1), Block(3, 3), Block(3, 4))


def test_a_residual_net_by_hand():
    """The shortcuts are given; what is rebuilt is the block's branch."""
    model = residual()
    rr, y = Racecar(model, random(2, 1, 4, 4)), random(5, 4, 4, 4)
    first, second = random(5, 3, 4, 4), random(5, 4, 4, 4)
    back = rr.reverse(y, given={"1.add": first, "2.add": second})
    d = y - second  # a ReLU at the end is not undone
    for block, given in ((model[2], first), (model[1], None)):
        d = undo_conv(block.b, d)
        d = undo_conv(block.a, F.relu(F.group_norm(d, 1, block.norm.weight, block.norm.bias)))
        d = F.relu(d) - given if given is not None else d
    close(back, undo_conv(model[0], d))


@pytest.mark.parametrize("name", ["1.add", "2.add"])
def test_without_it_the_place_and_the_argument_are_named(name):
    rr = Racecar(residual(), random(2, 1, 4, 4))
    known = {"1.add": random(2, 3, 4, 4), "2.add": random(2, 4, 4, 4)}
    del known[name]
    with pytest.raises(NotReversible) as caught:
        rr.reverse(random(2, 4, 4, 4), given=known)
    text = str(caught.value)
    shape, missing = {"1.add": ("(N, 3, 4, 4)", "'0'"), "2.add": ("(N, 4, 4, 4)", "'2.shortcut'")}[name]
    assert f"given={{'{name}': tensor of shape {shape}}}" in text
    assert f"give the output of {missing}" in text
    assert "\n" not in text


def test_the_other_tensor_can_be_followed():
    """A tuple says which one: here the branch is given, and the shortcut is rebuilt."""
    model = residual()
    rr, y, branch = Racecar(model, random(2, 1, 4, 4)), random(2, 4, 4, 4), random(2, 4, 4, 4)
    back = rr.reverse(y, to="2.shortcut", given={"2.add": (branch, None)})
    close(back, F.relu(undo_conv(model[2].shortcut, y - branch)))
    close(rr.reverse(y, to="2.shortcut", given={"2.add": branch}), back)  # only the shortcut leads there


def test_what_is_below_the_join_alone_needs_nothing():
    model = residual()
    rr = Racecar(model, random(2, 1, 4, 4))
    y = random(2, 3, 4, 4)
    close(rr.reverse(y, start="0"), undo_conv(model[0], y))
    assert rr.reverse(random(2, 4, 4, 4), start="2.b", to="2.a").shape == (2, 3, 4, 4)


def test_concatenation_gate_and_products_by_hand():
    def forward(m, x):
        h = torch.tanh(m.a(x))
        gated = m.b(h) * torch.sigmoid(m.gate(h))
        return m.c(torch.cat([gated, x], 1))

    parts = {"a": nn.Linear(3, 4), "b": nn.Linear(4, 5), "gate": nn.Linear(4, 5), "c": nn.Linear(8, 6)}
    model = Net(forward, **parts).double()
    rr, y, gate = Racecar(model, random(2, 3)), random(4, 6), torch.sigmoid(random(4, 5))
    back = rr.reverse(y, given={"cat": random(4, 3), "mul": gate})
    both = undo_linear(model.c, y)
    d = torch.tanh(undo_linear(model.b, both[:, :5] / gate))
    close(back, undo_linear(model.a, d))
    value = random(4, 5)
    back = rr.reverse(y, given={"cat": random(4, 3), "mul": (value, None)})
    close(back, undo_linear(model.a, torch.tanh(undo_linear(model.gate, both[:, :5] / value))))


def attend(m, x):
    q, k, v = m.q(x), m.k(x), m.v(x)
    return m.out(F.scaled_dot_product_attention(q, k, v))


def test_attention_leads_on_to_its_values():
    """If queries and keys are given: by the transposed attention. It is not linear in queries or keys."""
    model = Net(attend, **{name: nn.Linear(4, 4) for name in ("q", "k", "v", "out")}).double()
    rr, y, q, k = Racecar(model, random(2, 5, 4)), random(3, 5, 4), random(3, 5, 4), random(3, 5, 4)
    place = "scaled_dot_product_attention"
    with pytest.raises(NotReversible, match=r"\(tensor of shape \(N, 5, 4\), tensor of shape \(N, 5, 4\), None\)"):
        rr.reverse(y)
    attention = (q @ k.mT / 2).softmax(-1)
    d = attention.mT @ undo_linear(model.out, y)
    for _ in range(2):
        close(rr.reverse(y, given={place: (q, k, None)}), undo_linear(model.v, d))
    with pytest.raises(NotReversible, match="not linear"):
        rr.reverse(y, given={place: (None, k, q)})
    with pytest.raises(ValueError, match="3 tensors are joined there"):
        rr.reverse(y, given={place: q})


def test_a_transformer_with_all_that_is_missing():
    """It names one place after the other, until the reverse pass comes to the input."""
    model, x = NETWORKS["encoder"]()
    rr, given, places = Racecar(model, x), {}, []
    y = call(model, x).detach()
    while True:
        try:
            back = rr.reverse(y, given=given)
            break
        except NotReversible as error:
            place = str(error).partition("given={'")[2].partition("'")[0]
            shape = (x.shape[0], *x.shape[1:-1], 8)
            attention = (torch.rand(x.shape[0], 2, x.shape[1], 4), torch.rand(x.shape[0], 2, x.shape[1], 4), None)
            given[place] = attention if "attention" in place else torch.rand(shape)
            assert place not in places
            places.append(place)
    assert back.shape[0] == x.shape[0]
    assert len(places) == 6  # two blocks with an attention and two shortcuts each


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_nets_are_refused(kind):
    model = Net(lambda m, x: m.head(m.cells(x)[0]), cells=kind(3, 4, batch_first=True), head=nn.Linear(4, 2)).double()
    rr = Racecar(model, random(2, 5, 3))
    with pytest.raises(NotReversible, match="no rule leads back through it"):
        rr.reverse(random(2, 5, 2))
    y = random(2, 5, 2)
    close(rr.reverse(y, to="head"), undo_linear(model.head, y))


@pytest.mark.parametrize("function", [lambda x: x.sort(1).values[:, :2], lambda x: x.topk(2).values, F.glu])
def test_operations_that_nothing_undoes(function):
    rr = Racecar(chain(nn.Linear(3, 4), function, nn.Linear(2, 2)), random(2, 3))
    with pytest.raises(NotReversible, match="start='LAYER'"):
        rr.reverse(random(2, 2))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"1.add": random(2, 3, 4, 4)}, ("'2.add'",)),
        ({"2.add": random(2, 4, 4, 5), "1.add": random(2, 3, 4, 4)}, ("'2.add'", "(2, 4, 4, 5)", "(N, 4, 4, 4)")),
        ({"2.add": 3}, ("'2.add'", "tensor")),
        ({"2.add": (None, None)}, ("'2.add'", "2 entries")),
        ({"2.add": (None,)}, ("'2.add'", "2 entries")),
        ({"add": random(2)}, ("'add'", "'1.add', '2.add'")),
    ],
)
def test_mistakes_are_one_sentence(given, words):
    rr = Racecar(residual(), random(2, 1, 4, 4))
    with pytest.raises((ValueError, TypeError)) as caught:
        rr.reverse(random(2, 4, 4, 4), given=given)
    assert all(word in str(caught.value) for word in words), str(caught.value)
