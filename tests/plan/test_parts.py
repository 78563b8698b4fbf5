"""Slices, chunks and indices that take the same part of a tensor have the same loss."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.by_hand import Net, close, squares, undo_linear
from tests.losses import classic

INDEX = torch.arange(4)
FIRST_HALF = {
    "[:, :4]": lambda h: h[:, :4], "[..., 0:4:1]": lambda h: h[..., 0:4:1], "[:, :-4]": lambda h: h[:, :-4],
    "narrow": lambda h: h.narrow(1, 0, 4), "chunk": lambda h: h.chunk(2, 1)[0], "split": lambda h: h.split(4, 1)[0],
    "split by sizes": lambda h: h.split([4, 3, 1], 1)[0], "tensor_split": lambda h: h.tensor_split([4], 1)[0],
    "index_select": lambda h: h.index_select(1, INDEX), "list": lambda h: h[:, [0, 1, 2, 3]],
    "index": lambda h: h[:, INDEX], "negative pad": lambda h: F.pad(h, (0, -4)),
    "view and select": lambda h: h.view(-1, 2, 4)[:, 0], "view and unbind": lambda h: h.view(-1, 2, 4).unbind(1)[0],
}  # fmt: skip
HALVES = {
    "slices": lambda h: (h[:, :4], h[:, 4:]),
    "chunk": lambda h: h.chunk(2, 1),
    "split": lambda h: h.split([4, 4], 1),
    "narrow": lambda h: (h.narrow(1, 0, 4), h.narrow(1, 4, 4)),
    "unbind": lambda h: h.view(-1, 2, 4).unbind(1),
}
WHERE = {
    "before a layer": lambda m, x, part: m.b(part(torch.tanh(m.a(x)))),
    "straight after one": lambda m, x, part: m.b(part(m.a(x))),
    "before an activation": lambda m, x, part: m.b(torch.tanh(part(m.a(x)))),
    "before a norm and its activation": lambda m, x, part: m.b(torch.tanh(m.norm(part(m.a(x))))),
    "between two activations": lambda m, x, part: m.b(torch.tanh(part(torch.sigmoid(m.a(x))))),
    "of the input": lambda m, x, part: m.b(part(x)),
    "at the end": lambda m, x, part: part(torch.tanh(m.a(x))),
}
BOTH = {
    "two layers": lambda m, x, parts: [
        layer(h) for layer, h in zip((m.b, m.c), parts(torch.tanh(m.a(x))), strict=True)
    ],
    "activations first": lambda m, x, parts: [m.b(torch.tanh(one)) for one in parts(m.a(x))],
    "a gate": lambda m, x, parts: m.b(torch.mul(*parts(m.a(x)))),
    "of the input": lambda m, x, parts: [m.b(one) for one in parts(x)],
}


def net(seen: int = 4) -> tuple[nn.ModuleDict, Tensor]:
    torch.manual_seed(0)
    parts = {"a": nn.Linear(8, 8), "b": nn.Linear(seen, 3), "c": nn.Linear(4, 2), "norm": nn.LayerNorm(4)}
    return nn.ModuleDict(parts).double(), torch.randn(5, 8, dtype=torch.float64)


def losses(forward: Any, spellings: dict[str, Any], modes: Sequence[str], seen: int = 4) -> list[dict[str, Any]]:
    """For each mode, terms and gradients by the spelling; b sees so many features."""
    parts, x = net(seen)
    found: list[dict[str, Any]] = [{} for _ in modes]
    for name, spelling in spellings.items():
        model = Net(lambda m, x, how=spelling: forward(m, x, how), **parts)
        rr = classic(model, x, scale="sum")
        for rr.mode, results in zip(modes, found, strict=True):
            model.zero_grad()
            rr(x)[1].backward()
            results[name] = ({**rr.terms}, [one.grad.clone() for one in model.parameters() if one.grad is not None])
    return found


@pytest.mark.parametrize("where", WHERE)
def test_equal_parts_have_equal_losses(where: str):
    for found in losses(WHERE[where], FIRST_HALF, ("auto", "layerwise", "full")):
        first = found["chunk"]
        assert all(term > 0 for term in first[0].values())
        for one in found.values():
            close(one, first)


@pytest.mark.parametrize("where", BOTH)
def test_several_parts_are_a_fork(where: str):
    for found in losses(BOTH[where], HALVES, ("auto", "layerwise")):
        for one in found.values():
            close(one, found["chunk"])


@pytest.mark.parametrize("part", FIRST_HALF.values(), ids=FIRST_HALF)
def test_what_a_layer_sees_is_its_d(part: Any):
    """By hand: b is compared with the part, and a starts from its own output; in mode full, with zeros beside d'."""
    parts, x = net()
    model = Net(lambda m, x: m.b(part(torch.tanh(m.a(x)))), **parts)
    h = torch.tanh(model.a(x))
    back = undo_linear(model.b, model.b(h[:, :4]))
    whole = {"auto": h, "layerwise": h, "full": torch.cat([back, torch.zeros_like(back)], 1)}
    rr = classic(model, x, scale="sum")
    for rr.mode, start in whole.items():
        rr(x)
        expected = {"a": squares(x - undo_linear(model.a, start)), "b": squares(h[:, :4] - back)}
        close(rr.terms, {name: one.detach() for name, one in expected.items()})


def test_before_an_activation_zeros_come_back():
    """By hand: d is what the activation gave, so the part belongs to the layer below and is undone, as a pooling is."""
    parts, x = net()
    for part in FIRST_HALF.values():
        model = Net(lambda m, x, part=part: m.b(torch.tanh(part(m.a(x)))), **parts)
        d2 = torch.tanh(model.a(x)[:, :4])
        back = torch.tanh(undo_linear(model.b, model.b(d2)))
        rr = classic(model, x, scale="sum")
        rr(x)
        start = torch.cat([back, torch.zeros_like(back)], 1)
        close(rr.terms["b"], squares(d2 - back).detach())
        close(rr.terms["a"], squares(x - undo_linear(model.a, start)).detach())


WHOLES = {
    "[:, :8]": lambda h: h[:, :8], "chunk": lambda h: h.chunk(1, 1)[0], "split": lambda h: h.split(8, 1)[0],
    "narrow": lambda h: h.narrow(1, 0, 8), "unbind": lambda h: h[:, None].unbind(1)[0], "select": lambda h: h[None][0],
}  # fmt: skip


@pytest.mark.parametrize("whole", WHOLES.values(), ids=WHOLES)
def test_all_of_a_tensor_is_no_part(whole: Any):
    """The reverse pass goes on as if it were not there."""
    spellings = {"": lambda h: h, "whole": whole}
    (found,) = losses(lambda m, x, how: m.b(how(torch.tanh(m.a(x)))), spellings, ["auto"], seen=8)
    close(found["whole"], found[""])


def test_a_plan_for_the_whole_is_none_for_a_part():
    """The last step of a sequence of length 1 is the whole tensor; of a longer one it is a part, planned anew."""
    torch.manual_seed(0)
    model = Net(lambda m, x: m.b(torch.tanh(m.a(x))[:, -1]), a=nn.Linear(4, 4), b=nn.Linear(4, 3)).double()
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    rr = classic(model, x[:, :1])
    for data in (x[:, :1], x, x[:, :2], x[:, :1]):
        close(rr(data)[1], classic(model, data)(data)[1])


RELUS = {
    "where": lambda h: torch.where(h < 0, 0.0, h), "masked_fill": lambda h: h.masked_fill(h < 0, 0),
    "in place": lambda h: h.masked_fill_(h < 0, 0), "of a mask": lambda h: h.masked_fill(~(h >= 0), 0),
    "a product": lambda h: h * (h > 0), "a product with numbers": lambda h: h * (h > 0).to(h.dtype),
    "logical_not": lambda h: h.masked_fill(torch.logical_not(h > 0), 0), "relu": torch.relu,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "layerwise", "full"])
def test_equal_activations_have_equal_losses(mode: str):
    torch.manual_seed(0)
    layers = {"a": nn.Linear(8, 8).double(), "b": nn.Linear(8, 3).double()}
    x = torch.randn(5, 8, dtype=torch.float64)
    terms = {}
    for name, function in RELUS.items():
        rr = classic(Net(lambda m, x, f=function: m.b(f(m.a(x))), **layers), x, mode=mode)
        rr(x)
        terms[name] = rr.terms
    for one in terms.values():
        close(one, terms["relu"])


@pytest.mark.soak
def test_a_slice_of_a_part_compiles():
    torch._dynamo.reset()
    parts, x = net()
    model = Net(lambda m, x: m.b(torch.tanh(m.a(x).chunk(2, 1)[0])), **parts)
    rr = classic(model, x, fraction=0.5)
    close(torch.compile(rr, backend="aot_eager", fullgraph=True)(x)[1], rr(x)[1])
