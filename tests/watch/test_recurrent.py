"""Recurrent networks: each projection is a layer, as in a network written by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from racecar import NotReversible
from tests.by_hand import Net
from tests.losses import classic
from tests.steps import assert_same, step

N, T, C, H = 3, 5, 4, 6
KINDS = {
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}
OPTIONS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "stacked": {"num_layers": 3},
    "bidirectional": {"bidirectional": True, "batch_first": True},
    "all": {"num_layers": 2, "bidirectional": True, "bias": False},
}


def cell(kind, z, r, h, c):
    """One step, from W_ih x + b_ih and W_hh h + b_hh: (what a projection sees or the new state, c)."""
    if kind in ("tanh", "relu"):
        return getattr(torch, kind)(z + r), None
    if kind == "gru":
        (a, b, g), (p, q, s) = z.chunk(3, -1), r.chunk(3, -1)
        keep = (b + q).sigmoid()
        return (1 - keep) * (g + (a + p).sigmoid() * s).tanh() + keep * h, None
    i, f, g, o = (z + r).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def by_hand(kind, rnn, x, h0=None, c0=None):
    """(output, Σ ‖d − d'‖² of every weight): the equations, one sample and one time step after the other."""
    again = {"tanh": torch.tanh, "relu": torch.relu}.get(kind, lambda h: h)
    x = x.transpose(0, 1) if rnn.batch_first else x
    directions = 1 + rnn.bidirectional
    errors = {}

    def compare(name, d, back):
        errors[name] = errors.get(name, 0) + (d - back).square().sum()

    for layer in range(rnn.num_layers):
        made = []
        for direction in range(directions):
            suffix = f"_l{layer}{'_reverse' * direction}"
            names = ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")
            w, v, p, b, e = (getattr(rnn, name + suffix, None) for name in names)
            at = layer * directions + direction
            size = rnn.proj_size or H
            h = x.new_zeros(x.shape[1], size) if h0 is None else h0[at]
            c = x.new_zeros(x.shape[1], H) if c0 is None else c0[at]
            states = [None] * len(x)
            for t in range(len(x))[:: -1 if direction else 1]:
                back = x[t] @ w.T @ w
                compare("weight_ih" + suffix, x[t], again(back) if layer else back)
                compare("weight_hh" + suffix, h, again(h @ v.T @ v))
                h, c = cell(kind, F.linear(x[t], w, b), F.linear(h, v, e), h, c)
                if p is not None:
                    compare("weight_hr" + suffix, h, h @ p.T @ p)
                    h = h @ p.T
                states[t] = h
            made.append(torch.stack(states))
        x = torch.cat(made, -1)
    return x.transpose(0, 1) if rnn.batch_first else x, errors


def gradients(loss, module):
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    return {name: one for (name, _), one in zip(module.named_parameters(), found, strict=True)}


CASES = [(kind, {"hidden_size": H, **OPTIONS[name]}) for kind in KINDS for name in OPTIONS]
CASES += [("lstm", {"hidden_size": H, "proj_size": 2, **OPTIONS[name]}) for name in ("batch first", "all")]


@pytest.mark.parametrize("kind, options", CASES)
def test_the_terms_are_those_of_the_equations(kind, options):
    rnn = KINDS[kind](C, **options).double()
    x = torch.randn(N, T, C).double()
    rr = classic(rnn, x, mode="layerwise", scale="sum")
    output, loss = rr(x)
    torch.testing.assert_close(output, rnn(x), rtol=0, atol=0)
    expected, errors = by_hand(kind, rnn, x)
    torch.testing.assert_close(output[0], expected)
    assert rr.plan.covered == 1
    torch.testing.assert_close(dict(rr.terms), errors)
    torch.testing.assert_close(gradients(loss, rnn), gradients(sum(errors.values()), rnn))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_input(kind):
    torch.manual_seed(1)  # with two units, relu often gives 0 everywhere
    x = torch.randn(2, 2, 2).double().requires_grad_()
    rr = classic(KINDS[kind](2, 2, 2).double(), x, scale="sum")
    assert torch.autograd.gradcheck(lambda x: rr(x)[1], x)


@pytest.mark.parametrize("kind", ["tanh", "lstm"])
def test_first_states_that_are_data(kind):
    rnn = KINDS[kind](C, H, 2).double()
    start = tuple(torch.rand(2, N, H).double() for _ in range(1 + (kind == "lstm")))
    x = torch.randn(T, N, C).double()
    rr = classic(rnn, (x, start if kind == "lstm" else start[0]), mode="layerwise", scale="sum")
    output, _ = rr(x, start if kind == "lstm" else start[0])
    expected, errors = by_hand(kind, rnn, x, *start)
    torch.testing.assert_close(output[0], expected)
    torch.testing.assert_close(dict(rr.terms), errors)


class Packed(nn.Module):
    """Sequences of different lengths, packed."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


@pytest.mark.parametrize(
    "kind, options", [("relu", {}), ("gru", {"num_layers": 2}), ("lstm", {"bidirectional": True, "proj_size": 2})]
)
def test_packed_sequences_are_each_sequence_alone(kind, options):
    rnn = KINDS[kind](C, H, batch_first=True, **options).double()
    x, lengths = torch.randn(4, T, C).double(), torch.tensor([2, 5, 1, 4])
    rr = classic(Packed(rnn), (x, lengths), mode="layerwise", scale="sum")
    output, loss = rr(x, lengths)
    torch.testing.assert_close(output, rr.model(x, lengths), rtol=0, atol=0)
    each = [by_hand(kind, rnn, x[i : i + 1, :n])[1] for i, n in enumerate(lengths)]
    torch.testing.assert_close(dict(rr.terms), {f"rnn.{name}": sum(one[name] for one in each) for name in each[0]})
    total = sum(sum(one.values()) for one in each)
    torch.testing.assert_close(gradients(loss, rnn), gradients(total, rnn))


class Loop(nn.Module):
    """A cell, and its steps one by one."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, *steps, state=None):
        for x in steps:
            state = self.cell(x, state)
        return state[0] if isinstance(state, tuple) else state


CELLS = {"tanh": nn.RNNCell, "relu": lambda *sizes: nn.RNNCell(*sizes, nonlinearity="relu"), "lstm": nn.LSTMCell}
CELLS["gru"] = nn.GRUCell


def same_weights(kind):
    """A loop over a cell and a whole network."""
    rnn, loop = KINDS[kind](C, H, batch_first=True).double(), Loop(CELLS[kind](C, H)).double()
    loop.cell.load_state_dict({name.removesuffix("_l0"): one for name, one in rnn.state_dict().items()})
    return rnn, loop


@pytest.mark.parametrize("kind", KINDS)
def test_cells(kind):
    """The terms of a cell, one per time step, add up to those of the network with the same weights."""
    rnn, loop = same_weights(kind)
    x = torch.randn(N, T, C).double()
    whole = classic(rnn, x, mode="layerwise", scale="sum")
    steps = classic(loop, x.unbind(1), mode="layerwise", scale="sum")
    _, loss = whole(x)
    _, total = steps(*x.unbind(1))
    torch.testing.assert_close(total, loss)
    for name in ("weight_ih", "weight_hh"):
        parts = [term for key, term in steps.terms.items() if name in key]
        assert len(parts) == T - (name == "weight_hh")  # the first state is no data
        torch.testing.assert_close(sum(parts), whole.terms[f"{name}_l0"])
    ours, theirs = gradients(loss, rnn), gradients(total, loop)
    torch.testing.assert_close(list(ours.values()), list(theirs.values()))


class Tanh(nn.Module):
    """nn.RNNCell as one would write it."""

    def __init__(self, cell):
        super().__init__()
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = cell.parameters()

    def forward(self, x, h):
        return torch.tanh(F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh))


@pytest.mark.parametrize("gradient", ["both", "reverse", "weights"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_a_cell_written_by_hand(gradient, fraction):
    """The same layers with the same names, terms and gradients."""
    _, loop = same_weights("tanh")
    last = nn.Linear(H, 2).double()
    models = [
        Net(lambda m, h, *x: m.last(m.loop(*x, state=h)), loop=one, last=last) for one in (loop, Loop(Tanh(loop.cell)))
    ]
    x = (torch.randn(4, H).double(), *torch.randn(T, 4, C).double())
    ours, theirs = (classic(one, x, gradient=gradient, fraction=fraction) for one in models)
    assert_same(step(ours, x), step(theirs, x))
    assert [entry.source for entry in ours.plan] == [entry.source for entry in theirs.plan]


def test_dropout_between_layers_draws_the_same_numbers():
    rnn, x = nn.LSTM(C, H, 3, dropout=0.5), torch.randn(T, N, C)
    rr = classic(rnn, x)
    torch.manual_seed(1)
    expected = rnn(x)
    torch.manual_seed(1)
    torch.testing.assert_close(rr(x)[0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "num_layers": 2, "bidirectional": True}])
def test_a_slice_is_the_loss_of_its_samples(options):
    rnn = nn.LSTM(C, H, **options).double()
    time = 1 if options else 0
    x = torch.randn(4, 4, C).double()
    model = Net(lambda m, x: m.rnn(x if time else x.transpose(0, 1))[0], rnn=rnn)
    rr = classic(model, x, mode="layerwise", scale="mean", fraction=0.5)
    rr(x)
    whole = classic(model, x, mode="layerwise", scale="mean")
    whole(x[:2])
    torch.testing.assert_close(dict(rr.terms), dict(whole.terms))


def test_the_layer_below_starts_from_what_the_input_projection_rebuilds():
    model = Net(
        lambda m, x: m.last(m.rnn(torch.tanh(m.first(x)))[1][0][0]),
        first=nn.Linear(C, C), rnn=nn.LSTM(C, H), last=nn.Linear(H, 2),
    ).double()  # fmt: skip
    x = torch.randn(T, N, C).double()
    rr = classic(model, x, scale="sum")
    plan = {entry.name: (entry.source, entry.reason) for entry in rr.plan}
    assert plan["first"] == ("reverse", "")
    assert plan["rnn.weight_ih_l0"] == plan["rnn.weight_hh_l0"] == ("forward", "join: lstm")
    rr(x)
    d, w = torch.tanh(model.first(x)), model.rnn.weight_ih_l0
    back = (torch.tanh(d @ w.T @ w) - model.first.bias) @ model.first.weight
    torch.testing.assert_close(rr.terms["first"], (x - back).square().sum())
    with pytest.raises(NotReversible, match="'lstm' after layer"):
        classic(model, x, mode="full")


@pytest.mark.soak
def test_cells_compiled():
    torch._dynamo.reset()
    model = Net(lambda m, x, h: m.rnn(m.lstm(x)[0], h), lstm=nn.LSTMCell(C, H), rnn=nn.RNNCell(H, H)).double()
    x = torch.randn(N, C).double(), torch.randn(N, H).double()
    rr, eager = classic(model, x), classic(copy.deepcopy(model), x)
    assert_same(step(rr, x, torch.compile(rr, backend="eager", fullgraph=True)), step(eager, x))
    torch._dynamo.reset()
