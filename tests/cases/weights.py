"""Whose weight it is, and so what the layer is called."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tests.by_hand import Layer, Net, chain, undo_linear
from tests.cases import case, rows
from tests.networks import NETWORKS


@case
def one_layer_is_the_model():
    return nn.Linear(6, 4), rows(), lambda m, x: chain(("",), (x, m(x)), (lambda y: undo_linear(m, y),))


@case
def reused_layer():
    net, x = NETWORKS["reused"]()

    def layers(m, x):
        def into(layer):
            return lambda y: torch.tanh(undo_linear(layer, y))

        ds = [x]
        for layer in (m.first, m.step, m.step, m.step):
            ds.append(torch.tanh(layer(ds[-1])))
        ds[-1] = m.step(ds[-2])  # no activation after the last use: d is its output
        names = ("first", "step", "step#2", "step#3", "last")
        steps = (lambda y: undo_linear(m.first, y), *(into(m.step),) * 3, lambda y: undo_linear(m.last, y))
        return chain(names, (*ds, m.last(ds[-1])), steps)

    return net, x.double(), layers


@case
def tied_weights_keep_their_own_names():
    net, x = NETWORKS["tied"]()

    def layers(m, x):
        parts = (m.first, m.middle, m.again)
        ds = [x]
        for layer in parts:
            ds.append(torch.tanh(layer(ds[-1])))
        backs = [lambda y, one=one: torch.tanh(undo_linear(one, y)) for one in (*parts, m.last)]
        backs[0] = lambda y: undo_linear(m.first, y)
        return chain(("first", "middle", "again", "last"), (*ds, m.last(ds[-1])), backs)

    return net, x.double(), layers


@case
def tied_autoencoder():
    """The decoder's weight belongs to the encoder: its second use."""
    net, x = NETWORKS["tied_autoencoder"]()

    def layers(m, x):
        matrix = m.encoder.weight  # 5 × 8
        d2 = torch.tanh(m.encoder(x))
        backs = (lambda y: undo_linear(m.encoder, y), lambda y: torch.tanh((y - m.bias) @ matrix.T))
        return chain(("encoder", "encoder#2"), (x, d2, d2 @ matrix + m.bias), backs)

    return net, x.double(), layers


@case
def module_with_several_weights():
    block = Net(lambda m, x: torch.tanh(x @ m.down + m.shift) @ m.up)
    block.down, block.up = nn.Parameter(torch.randn(6, 8) / 3), nn.Parameter(torch.randn(8, 4) / 3)
    block.shift = nn.Parameter(torch.randn(8))

    def layers(m, x):
        d2 = torch.tanh(x @ m.block.down + m.block.shift)
        backs = (lambda y: (y - m.block.shift) @ m.block.down.T, lambda y: torch.tanh(y @ m.block.up.T))
        return chain(("block.down", "block.up"), (x, d2, d2 @ m.block.up), backs)

    return Net(lambda m, x: m.block(x), block=block), rows(), layers


@case
def weight_borrowed_by_another_module():
    """The name is that of the module that owns the weight, not of the one that uses it."""
    net = Net(lambda m, x: F.linear(x, m.holder.weight, m.bias), holder=nn.Linear(6, 4))
    net.bias = nn.Parameter(torch.randn(4))
    return (
        net,
        rows(),
        lambda m, x: chain(
            ("holder",), (x, x @ m.holder.weight.T + m.bias), (lambda y: (y - m.bias) @ m.holder.weight,)
        ),
    )


@case
def parametrised_weights():
    net = nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 8)), nn.Tanh())
    net.append(parametrizations.orthogonal(nn.Linear(8, 4)))

    def layers(m, x):
        d2 = torch.tanh(m[0](x))
        backs = (lambda y: undo_linear(m[0], y), lambda y: torch.tanh(undo_linear(m[2], y)))
        return chain(("0", "2"), (x, d2, m[2](d2)), backs)

    return net, rows(), layers


@case
def hugging_face_conv1d():
    """Its weight is stored as (in, out)."""
    from transformers.pytorch_utils import Conv1D

    net = Net(lambda m, x: m.b(torch.tanh(m.a(x))), a=Conv1D(8, 6), b=Conv1D(4, 8))

    def layers(m, x):
        d2 = torch.tanh(x @ m.a.weight + m.a.bias)
        backs = (
            lambda y: (y - m.a.bias) @ m.a.weight.T,
            lambda y: torch.tanh((y - m.b.bias) @ m.b.weight.T),
        )
        return chain(("a", "b"), (x, d2, d2 @ m.b.weight + m.b.bias), backs)

    return net, torch.randn(3, 5, 6, dtype=torch.float64), layers


@case
def join_cross_attention():
    """One module, three weights of its own, and an output projection that is a module."""
    net, inputs = NETWORKS["cross_attention"]()

    def layers(m, inputs):
        x, memory = inputs
        a = m.attention
        biases = a.in_proj_bias.chunk(3)
        d2 = torch.tanh(m.embed(x))
        names, sources = ("q_proj_weight", "k_proj_weight", "v_proj_weight"), (d2, memory, memory)
        weights = [getattr(a, name) for name in names]
        q, k, v = (s @ w.T + b for s, w, b in zip(sources, weights, biases, strict=True))
        heads = [y.view(3, -1, 2, 4).transpose(1, 2) for y in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*heads)  # the join: its heads are merged on the way to out_proj
        merged = a.out_proj(mixed.transpose(1, 2).reshape(3, -1, 8))
        joined = torch.relu(d2 + merged)

        def into_mixed(y):
            return undo_linear(a.out_proj, y).view(3, -1, 2, 4).transpose(1, 2)

        ends = (torch.tanh, lambda y: y, lambda y: y)
        return [
            Layer("embed", x, d2, lambda y: undo_linear(m.embed, y)),
            *(
                Layer(f"attention.{name}", s, y, lambda y, w=w, b=b, end=end: end((y - b) @ w))
                for name, s, y, w, b, end in zip(names, sources, (q, k, v), weights, biases, ends, strict=True)
            ),
            Layer("attention.out_proj", mixed, merged, into_mixed),
            Layer("head", joined, m.head(joined), lambda y: torch.relu(undo_linear(m.head, y))),
        ]

    return net, tuple(x.double() for x in inputs), layers
