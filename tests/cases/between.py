"""Between two linear layers: activations, dropout, constants and parameters; and where the way ends."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.by_hand import Net, chain, undo_conv, undo_linear
from tests.cases import case, conv, images, pool, rows


def two_linears(forward: Callable, d2: Callable, after: Callable, first: Callable = lambda m, y: y, **parts: Any):
    """a → something → b, in full: `forward(m, h)` is what b sees, `d2(m, h)` is d2, h being a's output."""
    net = Net(lambda m, x: m.b(forward(m, m.a(x))), a=nn.Linear(6, 8), b=nn.Linear(8, 4), **parts)

    def layers(m, x):
        torch.manual_seed(1)
        h = m.a(x)
        backs = (lambda y: undo_linear(m.a, first(m, y)), lambda y: after(m, undo_linear(m.b, y)))
        return chain(("a", "b"), (x, d2(m, h), m.b(forward(m, h))), backs)

    return net, rows(), layers


CONSTANT = torch.linspace(0.5, 2, 8, dtype=torch.float64)


def tanh(m, x):
    return torch.tanh(x)


@case
def dropout_is_passed_over():
    """d2 is what the activation gave; dropout belongs to layer b."""
    return two_linears(lambda m, h: F.dropout(torch.tanh(h), 0.5), tanh, tanh)


@case
def in_place_activation():
    return two_linears(lambda m, h: h.relu_(), lambda m, h: torch.relu(h), lambda m, y: torch.relu(y))


@case
def in_place_constants():
    def shifted(m, h):
        return torch.tanh(h * 2 + 1)

    return two_linears(lambda m, h: h.mul_(2).add_(1).tanh_(), shifted, tanh, lambda m, y: (y - 1) / 2)


@case
def two_activations():
    def both(m, h):
        return torch.tanh(torch.relu(h))

    return two_linears(both, both, both)


@case
def rrelu_uses_its_mean_slope():
    def mean_slope(m, y):
        return F.leaky_relu(y, (0.1 + 0.5) / 2)

    return two_linears(lambda m, h: m.act(h), lambda m, h: m.act(h), mean_slope, act=nn.RReLU(0.1, 0.5).eval())


@case
def softmax_in_the_middle():
    def softmax(m, h):
        return h.softmax(-1)

    return two_linears(softmax, softmax, softmax)


@case
def constant_added_before_activation():
    """Like a bias: taken off on the way into a."""
    return two_linears(
        lambda m, h: torch.tanh(h + CONSTANT), lambda m, h: torch.tanh(h + CONSTANT), tanh, lambda m, y: y - CONSTANT
    )


@case
def parameter_added_before_activation():
    def shifted(m, h):
        return torch.tanh(h + m.shift)

    return two_linears(shifted, shifted, tanh, lambda m, y: y - m.shift, shift=nn.Parameter(torch.randn(8)))


@case
def constant_added_after_activation():
    return two_linears(lambda m, h: torch.tanh(h) + CONSTANT, tanh, lambda m, y: torch.tanh(y - CONSTANT))


@case
def constant_factor_after_activation():
    """Between d2 and b, so it is undone, and before the activation is re-applied."""
    return two_linears(lambda m, h: torch.tanh(h) * CONSTANT, tanh, lambda m, y: torch.tanh(y / CONSTANT))


@case
def constant_factor_before_activation():
    return two_linears(
        lambda m, h: torch.tanh(h * CONSTANT), lambda m, h: torch.tanh(h * CONSTANT), tanh, lambda m, y: y / CONSTANT
    )


@case
def constant_divisor_after_activation():
    return two_linears(lambda m, h: torch.tanh(h) / 4, tanh, lambda m, y: torch.tanh(y * 4))


@case
def parameter_factor_after_activation():
    """A parameter is a weight, and weights go back transposed: a diagonal matrix is its own transpose."""
    scale = nn.Parameter(torch.linspace(-1, 1, 8))
    return two_linears(lambda m, h: torch.tanh(h) * m.scale, tanh, lambda m, y: torch.tanh(y * m.scale), scale=scale)


@case
def input_is_normalised_by_constants():
    """d1 is the model's input itself, before the constants."""
    net = Net(lambda m, x: m.b(torch.tanh(m.a((x - 0.4) / 0.2))), a=nn.Linear(6, 8), b=nn.Linear(8, 4))

    def layers(m, x):
        d2 = torch.tanh(m.a((x - 0.4) / 0.2))
        backs = (lambda y: undo_linear(m.a, y) * 0.2 + 0.4, lambda y: torch.tanh(undo_linear(m.b, y)))
        return chain(("a", "b"), (x, d2, m.b(d2)), backs)

    return net, rows(), layers


@case
def embedding_is_the_first_d():
    net = Net(
        lambda m, t: m.b(torch.tanh(m.a(m.words(t)))), words=nn.Embedding(9, 6), a=nn.Linear(6, 8), b=nn.Linear(8, 4)
    )

    def layers(m, t):
        d1 = m.words.weight[t]
        d2 = torch.tanh(m.a(d1))
        backs = (lambda y: undo_linear(m.a, y), lambda y: torch.tanh(undo_linear(m.b, y)))
        return chain(("a", "b"), (d1, d2, m.b(d2)), backs)

    return net, torch.randint(9, (4, 3)), layers


@case
def positions_are_added_to_an_embedding():
    """A learned position is a parameter: affine, no join, so d1 is still the embedding's output."""
    net = Net(lambda m, t: m.a(m.words(t) + m.place), words=nn.Embedding(9, 6), place=nn.Parameter(torch.randn(3, 6)))
    net.a = nn.Linear(6, 4)

    def layers(m, t):
        d1 = m.words.weight[t]
        return chain(("a",), (d1, m.a(d1 + m.place)), (lambda y: undo_linear(m.a, y) - m.place,))

    return net, torch.randint(9, (4, 3)), layers


def looked_through(end: Callable, d3: Callable = lambda y: y):
    net = Net(lambda m, x: end(m.b(torch.tanh(m.a(x)))), a=nn.Linear(6, 8), b=nn.Linear(8, 4))

    def layers(m, x):
        d2 = torch.tanh(m.a(x))
        backs = (lambda y: undo_linear(m.a, y), lambda y: torch.tanh(undo_linear(m.b, y)))
        return chain(("a", "b"), (x, d2, d3(m.b(d2))), backs)

    return net, rows(), layers


@case
def softmax_at_the_end():
    return looked_through(lambda y: y.softmax(-1))


@case
def log_softmax_at_the_end():
    return looked_through(lambda y: F.log_softmax(y, 1))


@case
def activation_and_softmax_at_the_end():
    return looked_through(lambda y: F.softmax(torch.sigmoid(y), 1), torch.sigmoid)


@case
def pooling_at_the_end():
    """The last d is taken after the activation and before pooling."""
    net = Net(lambda m, x: pool(torch.tanh(m.conv(x))), conv=conv())
    return net, images(), lambda m, x: chain(("conv",), (x, torch.tanh(m.conv(x))), (lambda y: undo_conv(m.conv, y),))
