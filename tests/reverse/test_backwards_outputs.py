"""`rr.reverse(y)` of models with several outputs or inputs: ways that meet are averaged, and the plan says which."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import Net, undo_linear
from tests.rules.common import close, random

PARTS = {"a": (3, 4), "b": (4, 5), "c": (5, 2), "d": (4, 6)}


def net(function):
    torch.manual_seed(0)
    return Net(function, **{name: nn.Linear(*sizes) for name, sizes in PARTS.items()}).double()


def heads(m, x):
    """A head of two layers and a head of one, on one trunk."""
    h = torch.tanh(m.a(x))
    return m.c(torch.relu(m.b(h))), m.d(h)


def by_hand(model, first, second):
    """The mean of the two activations that the heads rebuild, or the one that there is."""
    found = []
    if first is not None:
        found.append(torch.tanh(undo_linear(model.b, torch.relu(undo_linear(model.c, first)))))
    if second is not None:
        found.append(torch.tanh(undo_linear(model.d, second)))
    return undo_linear(model.a, sum(found) / len(found))


def test_the_mean_where_ways_meet():
    model = net(heads)
    rr, first, second = Racecar(model, random(2, 3)), random(5, 2), random(5, 6)
    close(rr.reverse((first, second)), by_hand(model, first, second))
    close(rr.reverse([first, None]), by_hand(model, first, None))
    close(rr.reverse({1: second}), by_hand(model, None, second))
    close(rr.reverse({"1": second}, to="d"), torch.tanh(undo_linear(model.d, second)))


@dataclass
class Named:
    logits: Tensor
    count: int
    aux: dict[str, Tensor]


def test_outputs_have_names():
    def forward(m, x):
        logits, aux = heads(m, x)
        return Named(logits, 3, {"head": aux})

    model = net(forward)
    rr, first, second = Racecar(model, random(2, 3)), random(5, 2), random(5, 6)
    close(rr.reverse({"aux.head": second}), by_hand(model, None, second))
    close(rr.reverse(Named(first, 3, {"head": second})), by_hand(model, first, second))


def test_the_plan_says_which_are_followed():
    rr = Racecar(net(heads), random(2, 3))
    assert str(rr.reverse_plan()).splitlines()[2:] == [
        "output '0'          given",
        "output '1'          given",
        "d           linear  output '1'",
        "c           linear  output '0'",
        "b           linear  c",
        "a           linear  mean of d, b",
        "result              a",
    ]
    some = rr.reverse_plan([0])
    assert ("output '1'", "", "-", "not followed") in some.rows()
    assert "mean" not in str(some)
    assert [row[0] for row in rr.reverse_plan(start="b", to="b").rows()] == ["output of b", "b", "result"]
    with pytest.raises(ValueError, match="no output 'logits'"):
        rr.reverse_plan(["logits"])


def test_parts_of_one_tensor_are_put_together():
    """Two heads that read other halves of a layer: each rebuilds its half, and where both do, the mean counts."""

    def forward(m, x):
        h = m.a(x)
        return m.b(h[:, :3]), m.c(h[:, 1:])

    torch.manual_seed(0)
    model = Net(forward, a=nn.Linear(3, 4), b=nn.Linear(3, 2), c=nn.Linear(3, 2)).double()
    rr, first, second = Racecar(model, random(2, 3)), random(5, 2), random(5, 2)
    left, right = undo_linear(model.b, first), undo_linear(model.c, second)
    middle = (left[:, 1:] + right[:, :2]) / 2
    close(rr.reverse((first, second)), undo_linear(model.a, torch.cat([left[:, :1], middle, right[:, 2:]], 1)))
    zeros = torch.zeros(5, 1).double()
    close(rr.reverse((first, None)), undo_linear(model.a, torch.cat([left, zeros], 1)))


def test_an_output_inside_of_the_net():
    """Features are an output, too: what comes from the head and what is given for them meet there."""

    def forward(m, x):
        h = torch.tanh(m.a(x))
        return {"features": h, "out": m.d(h).softmax(1)}

    model = net(forward)
    rr, features, out = Racecar(model, random(2, 3)), random(5, 4), random(5, 6)
    meet = (features + torch.tanh(undo_linear(model.d, out))) / 2  # the softmax is passed over
    close(rr.reverse({"features": features, "out": out}), undo_linear(model.a, meet))


def test_several_inputs():
    model = Net(lambda m, x, z: (m.a(x), m.b(z)), a=nn.Linear(3, 4), b=nn.Linear(2, 5)).double()
    rr, first, second = Racecar(model, (random(2, 3), random(2, 2))), random(4, 4), random(4, 5)
    x, z = rr.reverse((first, second))
    close(x, undo_linear(model.a, first))
    close(z, undo_linear(model.b, second))
    close(rr.reverse({1: second}), z)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (random(2, 2), ("2 outputs", "0, 1")),
        ((random(2, 2),), ("1 entries", "None")),
        ({"2": random(2, 2)}, ("'2'", "0, 1")),
        ((random(2, 2), random(3, 6)), ("output '1'", "(3, 6)")),
        ({}, ("floating-point tensor", "dict")),
    ],
)
def test_mistakes_are_one_sentence(y, words):
    rr = Racecar(net(heads), random(2, 3))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        rr.reverse(y)
    assert all(word in str(caught.value) for word in words), str(caught.value)
