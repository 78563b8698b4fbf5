"""Joins, forks, several inputs, and tensors that are changed in place."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.by_hand import Layer, Net, batch_norm, chain, undo_conv, undo_linear
from tests.cases import case, conv, images, rows
from tests.networks import NETWORKS


def residual(in_place: bool):
    def forward(m, x):
        out = m.bn(m.first(x))
        if in_place:
            out += x
        else:
            out = out + x
        return m.second(torch.relu_(out) if in_place else torch.relu(out))

    def layers(m, x):
        first = batch_norm(m.bn, m.first(x))
        d2 = torch.relu(first + x)
        return [
            Layer("first", x, first, lambda y: undo_conv(m.first, y)),
            Layer("second", d2, m.second(d2), lambda y: torch.relu(undo_conv(m.second, y))),
        ]

    return Net(forward, first=conv(2, 2), bn=nn.BatchNorm2d(2), second=conv()), images(), layers


@case
def join_residual():
    """After relu(bn(conv) + x) only the relu is re-applied; the reverse pass into that conv starts from bn(conv)."""
    return residual(in_place=False)


@case
def join_residual_in_place():
    return residual(in_place=True)


@case
def join_concatenation():
    """Nothing is re-applied below a join: d is the joined tensor."""
    net = Net(lambda m, x: m.b(torch.cat([torch.tanh(m.a(x)), x], 1)), a=nn.Linear(6, 8), b=nn.Linear(14, 4))

    def layers(m, x):
        h = torch.tanh(m.a(x))
        d2 = torch.cat([h, x], 1)
        return [
            Layer("a", x, h, lambda y: undo_linear(m.a, y)),
            Layer("b", d2, m.b(d2), lambda y: undo_linear(m.b, y)),
        ]

    return net, rows(), layers


@case
def join_gating():
    net = Net(
        lambda m, x: m.down(F.silu(m.gate(x)) * m.up(x)), gate=nn.Linear(6, 8), up=nn.Linear(6, 8), down=nn.Linear(8, 4)
    )

    def layers(m, x):
        gate, value = F.silu(m.gate(x)), m.up(x)
        return [
            Layer("gate", x, gate, lambda y: undo_linear(m.gate, y)),
            Layer("up", x, value, lambda y: undo_linear(m.up, y)),
            Layer("down", gate * value, m.down(gate * value), lambda y: undo_linear(m.down, y)),
        ]

    return net, rows(), layers


@case
def join_or_rather_fork():
    """The trunk starts again from its forward activation."""
    net = Net(
        lambda m, x: [m.b(h := torch.tanh(m.a(x))), m.c(h)], a=nn.Linear(6, 8), b=nn.Linear(8, 4), c=nn.Linear(8, 3)
    )

    def layers(m, x):
        d2 = torch.tanh(m.a(x))
        return [
            Layer("a", x, d2, lambda y: undo_linear(m.a, y)),
            Layer("b", d2, m.b(d2), lambda y: torch.tanh(undo_linear(m.b, y))),
            Layer("c", d2, m.c(d2), lambda y: torch.tanh(undo_linear(m.c, y))),
        ]

    return net, rows(), layers


@case
def join_two_inputs():
    net, inputs = NETWORKS["two_inputs"]()

    def layers(m, inputs):
        image, table = inputs
        seen, read = torch.relu(m.image(image)), torch.relu(m.table(table))
        d = torch.cat([seen.mean((2, 3)), read], 1)

        def into_image(y):  # stride 2 on an even size leaves one row and one column over
            y = y - m.image.bias[:, None, None]
            return F.conv_transpose2d(y, m.image.weight, stride=2, padding=1, output_padding=1)

        return [
            Layer("image", image, seen, into_image),
            Layer("table", table, read, lambda y: undo_linear(m.table, y)),
            Layer("head", d, m.head(d), lambda y: undo_linear(m.head, y)),
        ]

    return net, tuple(x.double() for x in inputs), layers


@case
def input_changed_in_place():
    """d1 is the input as it was given."""
    net = Net(lambda m, x: m.a(x.mul_(2)), a=nn.Linear(6, 4))
    return net, rows(), lambda m, x: chain(("a",), (x, m.a(x * 2)), (lambda y: undo_linear(m.a, y) / 2,))
