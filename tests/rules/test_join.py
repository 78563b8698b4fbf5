"""Constants are undone by their inverse, parameters go back transposed, two tensors of data end the way."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import NotReversible
from tests.losses import classic
from tests.pairwise import pairwise
from tests.rules.common import chain, close, forward, orthogonal, random, rebuild, rebuild_in

C = torch.tensor([0.5, -2.0, 3.0, 1.0], dtype=torch.float64)
CONSTANTS = {
    "x + 3": lambda x: x + 3, "3 + x": lambda x: 3 + x, "x - 3": lambda x: x - 3, "3 - x": lambda x: 3 - x,
    "-x": lambda x: -x, "x * 2": lambda x: x * 2, "2 * x": lambda x: 2 * x, "x / 2": lambda x: x / 2,
    "x + c": lambda x: x + C, "c + x": lambda x: C + x, "x - c": lambda x: x - C, "c - x": lambda x: C - x,
    "x * c": lambda x: x * C, "c * x": lambda x: C * x, "x / c": lambda x: x / C,
    "add": lambda x: torch.add(x, C, alpha=2), "add to c": lambda x: torch.add(C, x, alpha=2),
    "Tensor.add": lambda x: C.add(x), "sub": lambda x: x.sub(C, alpha=3),
    "sub from c": lambda x: torch.sub(C, x, alpha=3), "subtract": lambda x: torch.subtract(x, 1),
    "rsub": lambda x: torch.rsub(x, C), "rsub alpha": lambda x: torch.rsub(x, 1, alpha=2),
    "mul by name": lambda x: torch.mul(x, other=C), "input by name": lambda x: torch.mul(input=x, other=C),
    "multiply": lambda x: torch.multiply(C, x), "div": lambda x: x.div(C),
    "true_divide": lambda x: torch.true_divide(x, 4), "neg": torch.neg, "negative": lambda x: x.negative(),
    "add_": lambda x: x.add_(1), "+=": lambda x: _inplace("+=", x), "-=": lambda x: _inplace("-=", x),
    "*=": lambda x: _inplace("*=", x), "/=": lambda x: _inplace("/=", x), "mul_": lambda x: x.mul_(C),
    "neg_": lambda x: x.neg_(), "sub_": lambda x: x.sub_(C, alpha=2), "div_": lambda x: x.div_(2),
    "several": lambda x: (2 * x - C) / 3 + 1, "made of the form of x": lambda x: x + torch.ones_like(x),
    "0-d": lambda x: x * torch.tensor(2.0), "broadcast": lambda x: x.unsqueeze(1) + torch.arange(3.0).view(3, 1),
    "broadcast, c first": lambda x: torch.arange(1.0, 4).view(3, 1) * x.unsqueeze(1),
}  # fmt: skip


def _inplace(sign, x):
    if sign == "+=":
        x += C
    elif sign == "-=":
        x -= C
    elif sign == "*=":
        x *= C
    else:
        x /= C
    return x


@pytest.mark.parametrize("f", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_are_undone(f):
    """Before the first layer, and after an activation, where a change in place would spoil d₂ = relu(first(x))."""
    torch.manual_seed(0)
    x, first = random(3, 4), orthogonal(4)
    close(rebuild(chain(lambda x: f(x.clone()), orthogonal(4)), x), [x])
    d2 = forward(chain(first, nn.ReLU()), x)
    for found in rebuild_in(chain(first, nn.ReLU(), f, orthogonal(4)), x, "layerwise", "full"):
        close(found, [(d2 - first.bias) @ first.weight, d2])


@pytest.mark.parametrize(
    "zero", [lambda x: x * 0, lambda x: 0.0 * x, lambda x: x * torch.zeros(4), lambda x: torch.add(C, x, alpha=0)]
)
def test_zero_wipes_out(zero):
    """Nothing comes back, and it is no NaN, neither in the value nor in the gradient."""
    x = random(3, 4)
    model = chain(orthogonal(4), nn.Tanh(), zero, orthogonal(4))
    assert not rebuild(model, x)[1].any()
    classic(model, x)(x)[1].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_mask():
    mask, x = torch.tensor([1.0, 0.0, 2.0, 0.0]), random(3, 4)
    close(rebuild(chain(lambda x: x * mask, orthogonal(4)), x), [x * (mask != 0)])


class Parameter(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.p = f, nn.Parameter(torch.tensor([0.5, -2.0, 3.0, 0.1]))

    def forward(self, x):
        return self.f(x, self.p)


PARAMETERS = {  # forward, backward
    "x * p": (lambda x, p: x * p, lambda y, p: y * p),
    "p * x": (lambda x, p: p * x, lambda y, p: y * p),
    "x / p": (lambda x, p: x / p, lambda y, p: y / p),
    "x + p": (lambda x, p: x + p, lambda y, p: y - p),
    "p + 2 x": (lambda x, p: torch.add(p, x, alpha=2), lambda y, p: (y - p) / 2),
    "x - p": (lambda x, p: x - p, lambda y, p: y + p),
    "p - x": (lambda x, p: p - x, lambda y, p: p - y),
    "x * exp(p)": (lambda x, p: x * p.exp(), lambda y, p: y * p.exp()),
    "mul_": (lambda x, p: x.clone().mul_(p), lambda y, p: y * p),
}


@pytest.mark.parametrize("f, back", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_go_back_transposed(f, back):
    torch.manual_seed(0)
    part, last, x = Parameter(f), nn.Linear(4, 3), random(5, 4)
    model = chain(part, last)
    close(rebuild(model, x), [back((forward(model, x) - last.bias) @ last.weight, part.p)])
    assert [entry.name for entry in classic(model, x).plan] == ["1"]


def test_around_norm_and_activation():
    """Below them a constant belongs to the layer below, between them it is re-applied, above it is undone first."""
    torch.manual_seed(0)
    a, b, x = nn.Linear(5, 4), nn.Linear(4, 3), random(6, 5)
    model = chain(a, lambda x: 3 * x, nn.LayerNorm(4), lambda x: 2 * x + C, nn.Tanh(), lambda x: x / 5 - 1, b)
    y = (forward(model, x) - b.bias) @ b.weight
    back = torch.tanh(2 * F.layer_norm((y + 1) * 5, (4,)) + C)
    close(rebuild(model, x, "full"), [(back / 3 - a.bias) @ a.weight, back])
    close(rebuild(model, x)[0], (forward(model[:5], x) / 3 - a.bias) @ a.weight)


class Bare(nn.Module):
    """x @ W + b, with the weight of a linear layer."""

    def __init__(self, layer, spelling):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(layer.weight.detach().T.clone()),
            nn.Parameter(layer.bias.detach().clone()),
        )
        self.spelling = spelling

    def forward(self, x):
        return self.spelling(x, self.weight, self.bias)


SPELLINGS = {
    "x @ W + b": lambda x, w, b: x @ w + b, "b + x @ W": lambda x, w, b: b + x @ w,
    "matmul": lambda x, w, b: torch.matmul(x, w).add(b), "add_": lambda x, w, b: torch.mm(x, w).add_(b),
    "minus": lambda x, w, b: x @ w - (-b), "addmm": lambda x, w, b: torch.addmm(b, x, w),
}  # fmt: skip


MODES = ["auto", "full", "layerwise", "input"]


@pytest.mark.parametrize("name, mode, scale", pairwise([*SPELLINGS], MODES, ["relative", "mean", "sum"]))
def test_bare_weights_are_a_linear_layer(name, mode, scale):
    torch.manual_seed(0)
    spelling = SPELLINGS[name]
    layers = [nn.Linear(5, 4).double(), nn.Linear(4, 4).double(), nn.Linear(4, 3).double()]
    x = random(6, 5)
    whole = chain(layers[0], nn.ReLU(), layers[1], nn.LayerNorm(4), layers[2])
    bare = chain(
        Bare(layers[0], spelling), nn.ReLU(), Bare(layers[1], spelling), nn.LayerNorm(4), Bare(layers[2], spelling)
    )
    (_, one), (_, two) = (rr := classic(whole, x, mode, scale=scale))(x), (ss := classic(bare, x, mode, scale=scale))(x)
    close(one, two)
    assert list(rr.terms) == list(ss.terms)
    close(dict(rr.terms), dict(ss.terms))


class Block(nn.Module):
    def __init__(self, join):
        super().__init__()
        self.conv, self.norm, self.join = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), join

    def forward(self, x):
        return self.join(self.norm(self.conv(x)), x)


JOINS = {
    "add": torch.add, "+": lambda a, b: a + b, "+=": lambda a, b: _added(a, b), "add_": lambda a, b: a.add_(b),
    "mul": lambda a, b: a * b, "gate": lambda a, b: a.sigmoid() * b, "sub": lambda a, b: b - a,
    "maximum": torch.maximum, "cat": lambda a, b: torch.cat([a, b], 1)[:, :3],
    "lerp": lambda a, b: torch.lerp(a, b, 0.5), "stack": lambda a, b: torch.stack([a, b]).sum(0),
}  # fmt: skip


def _added(a, b):
    a += b
    return a


@pytest.mark.parametrize("name", JOINS)
def test_a_join_ends_the_way(name):
    """After relu(bn(conv) + x) only the relu is re-applied; the way into the convolution starts from bn(conv)."""
    torch.manual_seed(0)
    block, last, x = Block(JOINS[name]), nn.Conv2d(3, 2, 1), random(2, 3, 4, 4)
    model = chain(block, nn.ReLU(), last)
    back = torch.relu(F.conv_transpose2d(forward(model, x) - last.bias.view(-1, 1, 1), last.weight))
    d2 = F.batch_norm(block.conv(x), None, None, training=True)
    d2 = d2.sigmoid() if name == "gate" else d2
    inner = F.conv_transpose2d(d2 - block.conv.bias.view(-1, 1, 1), block.conv.weight, padding=1)
    for mode in ("auto", "layerwise"):
        close(rebuild(model, x, mode), [inner, back])
    for mode in ("full", "input"):
        with pytest.raises(NotReversible, match="auto.*layerwise"):
            classic(model, x, mode=mode)
    output, loss = classic(model, x)(x)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for n, p in model.named_parameters() if "norm" not in n)


@pytest.mark.parametrize("inner", [nn.Identity(), nn.ReLU()])
@pytest.mark.parametrize("gate", [nn.GLU(), lambda x: F.glu(x, dim=1)])
def test_a_gated_linear_unit_is_a_join(inner, gate):
    """The layer below ends before it, the layer above is compared with what it gave; without a warning."""
    model, x = chain(nn.Linear(6, 8), inner, gate, nn.Linear(4, 3)), random(5, 6)
    first, last = model[0], model[3]
    before = inner(first(x))
    d = before[:, :4] * before[:, 4:].sigmoid()
    expected = [(before - first.bias) @ first.weight, (last(d) - last.bias) @ last.weight]
    for rebuilt in rebuild_in(model, x, "layerwise", "auto"):
        close(rebuilt, expected)
    assert [entry.reason for entry in classic(model, x).plan] == ["join: glu", "the last layer"]
    with pytest.raises(NotReversible, match="'glu' after layer '0'"):
        classic(model, x, mode="full")
