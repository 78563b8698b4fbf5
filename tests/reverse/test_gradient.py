"""The three settings of gradient (d and d', d' alone, the weights alone), compared with steps written by hand."""

import copy
import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.by_hand import Net, batch_norm, close, lively, squares, undo_conv, undo_linear, up
from tests.losses import classic
from tests.networks import NETWORKS, SOME, call, seeded, soak_others
from tests.steps import assert_same, step

GRADIENTS = ["both", "reverse", "weights"]
SCALES = ["relative", "ratio", "anchored", "mean", "sum"]


class Part(NamedTuple):
    """One layer by hand."""

    name: str
    again: Callable[[Tensor], Tensor]
    """d_m of some samples ↦ their d_(m+1), where all that is no weight is a constant."""
    back: Callable[[Tensor], Tensor]
    """d_(m+1) ↦ d'_m."""


Case = tuple[nn.Module, Tensor, list[Tensor], list[Part]]
"""The net, its input, all d_m of the whole batch, and the layers."""


def convolutions(x: Tensor | None = None) -> Case:
    """Pooling, three activations, no norm."""
    torch.manual_seed(0)
    x = torch.randn(6, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    a, b, c = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 5, 3, padding=1), nn.Linear(80, 6)
    net = nn.Sequential(a, nn.ReLU(), nn.MaxPool2d(2), b, nn.Tanh(), nn.Flatten(), c).double()
    parts = [
        Part("0", lambda d: torch.relu(a(d)), lambda y: undo_conv(a, y)),
        Part("3", lambda d: torch.tanh(b(F.max_pool2d(d, 2))), lambda y: up(torch.relu(undo_conv(b, y)))),
        Part("6", lambda d: c(d.flatten(1)), lambda y: torch.tanh(undo_linear(c, y).view(-1, 5, 4, 4))),
    ]
    return net, x, list(itertools.accumulate(parts, lambda d, part: part.again(d), initial=x)), parts


def normed() -> Case:
    """A batch norm: forward it has the statistics of the whole batch."""
    torch.manual_seed(0)
    x = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    a, norm, b = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 5)
    net = lively(nn.Sequential(a, norm, nn.Tanh(), b))
    z = a(x).detach()
    mean, spread = z.mean(0), (z.var(0, unbiased=False) + norm.eps).sqrt()
    parts = [
        Part("0", lambda d: torch.tanh((a(d) - mean) / spread * norm.weight + norm.bias), lambda y: undo_linear(a, y)),
        Part("3", b, lambda y: torch.tanh(batch_norm(norm, undo_linear(b, y)))),
    ]
    d2 = torch.tanh(batch_norm(norm, a(x)))
    return net, x, [x, d2, b(d2)], parts


def dropped() -> Case:
    """Dropout before an activation: its mask is a constant."""
    torch.manual_seed(0)
    x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    a, b = nn.Linear(4, 6), nn.Linear(6, 5)
    net = nn.Sequential(a, nn.Dropout(0.4), nn.Tanh(), b).double()
    torch.manual_seed(5)
    mask = F.dropout(torch.ones(6, 6, dtype=torch.float64), 0.4)
    parts = [
        Part("0", lambda d: torch.tanh(a(d) * mask[: len(d)]), lambda y: undo_linear(a, y)),
        Part("3", b, lambda y: torch.tanh(undo_linear(b, y))),
    ]
    return net, x, list(itertools.accumulate(parts, lambda d, part: part.again(d), initial=x)), parts


CASES = {"convolutions": convolutions, "normed": normed, "dropped": dropped}


def by_hand(case: Case, gradient: str, mode: str, scale: str, fraction: float) -> dict[str, Tensor]:
    """The terms by layer."""
    _, x, ds, parts = case
    n = round(fraction * len(x))
    energy, ds = x.detach().square().mean(), [d[:n] for d in ds]
    found: dict[str, Tensor] = {}
    above: Tensor | None = None
    for part, d, out in reversed(list(zip(parts, ds, ds[1:], strict=False))):
        start = part.again(d.detach()) if gradient == "weights" else out
        above = part.back(start if above is None or mode == "layerwise" else above)
        d = d if gradient == "both" else d.detach()
        by = {"relative": squares(d).detach(), "ratio": squares(d), "anchored": d.numel() * energy, "mean": d.numel()}
        found[part.name] = squares(d - above) / by.get(scale, fraction)
    return {name: found[name] for name in sorted(found) if mode != "input" or name == "0"}


@pytest.mark.parametrize("mode", ["full", "layerwise", "input"])
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("name", CASES)
def test_a_step_by_hand(name: str, gradient: str, mode: str):
    """Value and gradient of every scale; λ of the mean over the layers. The whole batch and half of it take turns:
    every gradient, mode and scale meets both, on one net or another."""
    first = [*CASES].index(name)
    for i, scale in enumerate(SCALES, first):
        case, fraction = CASES[name](), (1.0, 0.5)[i % 2]
        net, x, _, _ = case
        settings = {"mode": mode, "scale": scale, "gradient": gradient, "fraction": fraction}
        rr = classic(net, x.detach(), reduction="mean", weight=0.3, **settings)
        expected = by_hand(case, gradient, mode, scale, fraction)
        torch.manual_seed(5)
        _, loss = rr(x)
        close(rr.terms, {name: term.detach() for name, term in expected.items()})
        wanted, total = [x, *net.parameters()], 0.3 / len(expected) * sum(expected.values())
        close(loss, total)
        ours, theirs = (torch.autograd.grad(one, wanted, allow_unused=True) for one in (loss, total))
        for mine, one in zip(ours, theirs, strict=True):
            zeros = torch.zeros(()).double()
            close(zeros if mine is None else mine, zeros if one is None else one)


@pytest.mark.parametrize("name", soak_others())
def test_values_are_the_same_and_nothing_below_is_reached(name: str):
    """Of all our nets, sliced, some also whole. For "weights" no gradient goes through an activation to the input."""
    model, inputs = NETWORKS[name]()
    data = isinstance(inputs, Tensor)
    if data and inputs.is_floating_point():
        inputs.requires_grad_()
    rr = classic(model, inputs)
    begin = copy.deepcopy(rr.state_dict())
    for rr.mode, rr.fraction in (("auto", 1.0), ("layerwise", 0.5)) if name in SOME else (("auto", 0.5),):
        losses = []
        for rr.gradient in GRADIENTS:
            rr.load_state_dict(begin)
            if data:
                inputs.grad = None
            torch.manual_seed(1)
            _, loss = call(rr, inputs)
            losses.append(loss.detach())
            loss.backward()
            if data and rr.gradient == "weights":
                assert inputs.grad is None or not inputs.grad.any()
        torch.testing.assert_close(losses[1:], [losses[0]] * 2, rtol=1e-4, atol=1e-6)


def joined():
    """A batch norm, dropout before an activation, and a join."""
    parts = {"a": nn.Linear(6, 8), "norm": nn.BatchNorm1d(8), "drop": nn.Dropout(0.4), "b": nn.Linear(14, 3)}
    return Net(lambda m, x: m.b(torch.cat([torch.tanh(m.drop(m.norm(m.a(x)))), x], 1)), **parts), torch.randn(4, 6)


@pytest.mark.parametrize(
    "build, fraction, gradient, backend",
    [
        pytest.param(seeded(joined), 0.5, "reverse", "aot_eager", marks=pytest.mark.soak, id="joined-reverse"),
        pytest.param(seeded(joined), 0.5, "weights", "eager", id="joined-weights"),
        pytest.param(NETWORKS["attention"], 1.0, "weights", "eager", marks=pytest.mark.soak, id="attention-weights"),
    ],
)
def test_compiled(build: Callable, fraction: float, gradient: str, backend: str):
    """As in eager mode, with gradients and buffers."""
    torch._dynamo.reset()
    model, inputs = build()
    eager, rr = (classic(m, inputs, fraction=fraction, gradient=gradient) for m in (copy.deepcopy(model), model))
    fast = torch.compile(rr, backend=backend, fullgraph=True)
    assert_same(step(rr, inputs, fast), step(eager, inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", SCALES)
def test_a_fixed_target_does_not_feel_its_layer(scale: str):
    """Without a weight above, d' is constant: with "both" d2 feels the term, with a fixed target nothing does."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5)).double(), torch.randn(6, 4).double()
    nn.init.zeros_(net[2].weight)
    for gradient, felt in (("both", True), ("reverse", False), ("weights", False)):
        _, loss = classic(net, x, scale=scale, weight={"2": 1}, mode="layerwise", gradient=gradient)(x)
        (made,) = torch.autograd.grad(loss, net[0].weight, allow_unused=True)
        assert (made is not None and bool(made.abs().max() > 0)) == felt
