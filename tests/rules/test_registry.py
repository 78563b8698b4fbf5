"""Rules of a user's own: for module classes and for functions."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import racecar
from racecar import NoRuleWarning
from racecar.rules import Operation, find, unregister
from racecar.rules.batch_dim import untracked
from racecar.rules.mask_rules import unknown
from tests.by_hand import Net
from tests.losses import classic
from tests.rules.common import chain, close, forward, random, rebuild


class Odd(nn.Module):
    """x ↦ (x W)³ + b: not affine, so there is no rule for it."""

    def __init__(self, width=4, out=3):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, out)), nn.Parameter(torch.randn(out))

    def forward(self, x):
        return cube(x, self.weight) + self.bias


class Odder(Odd):
    """A subclass has its base's rule."""


def cube(x, weight):
    """Seen by torch as one function, as functions of extensions are."""
    if torch.overrides.has_torch_function((x, weight)):
        return torch.overrides.handle_torch_function(cube, (x, weight), x, weight)
    return (x @ weight) ** 3


@pytest.fixture
def rules():
    """Register for one test."""
    kinds = []

    def add(one, **options):
        kinds.append(one)
        return racecar.rules.register(one, **options)

    yield add
    unregister(*kinds)
    assert all(find(kind) is None for kind in kinds)


@pytest.mark.parametrize("cls", [Odd, Odder])
def test_rule_for_a_module_class(rules, cls):
    """It receives the operation with its module, y and the shape of x; the layer has the module's name."""
    seen = []

    @rules(Odd)
    def undo(op, y, shape):
        seen.append((op, y.shape, shape))
        return (y - op.module.bias) @ op.module.weight.T

    layer, x = cls(), random(5, 6)
    model = chain(nn.Linear(6, 4), nn.Tanh(), layer)
    back = torch.tanh((forward(model, x) - layer.bias) @ layer.weight.T)
    close(rebuild(model, x)[1], back)
    op, y, shape = seen[-1]
    assert (op.module, op.name, y, shape) == (layer, "2", (5, 3), (5, 4))
    assert [entry.name for entry in classic(model, x).plan] == ["0", "2"]
    assert all(entry.constrained for entry in classic(model, x).plan)
    classic(model, x)(x)[1].backward()
    assert layer.weight.grad is not None


class Named(nn.LSTM):
    """Its outputs in a dict."""

    def forward(self, x):
        out, (state, cell) = super().forward(x)
        return {"out": out, "states": (state, cell)}


USES = {
    "the output": (lambda out, state, cell: out, ["out"]),
    "its last step": (lambda out, state, cell: torch.tanh(out[:, -1]), ["out"]),
    "the state": (lambda out, state, cell: state[0], ["state"]),
    "the cell": (lambda out, state, cell: torch.tanh(cell[0]), ["cell"]),
    "output and state": (lambda out, state, cell: torch.cat([out, state.transpose(0, 1)], 1), ["out"]),
    "nothing": (lambda out, state, cell: (out, state, cell), ["out"]),
}


@pytest.mark.parametrize("cls", [nn.LSTM, Named])
@pytest.mark.parametrize("use", USES)
def test_rule_for_a_module_with_several_outputs(rules, cls, use):
    """It gets the output that the model goes on with; of several, and if it goes on with none, the first."""
    seen = []

    @rules(nn.LSTM)
    def undo(op, y, shape):
        seen.append(y)
        return y.new_zeros(shape)

    go_on, names = USES[use]

    def run(m, x):
        made = m.lstm(x)
        out, (state, cell) = made if isinstance(made, tuple) else made.values()
        return {"out": out, "state": state, "cell": cell}

    def forward(m, x):
        left = go_on(**run(m, x))
        return left if isinstance(left, tuple) else m.last(left)

    model = Net(forward, lstm=cls(4, 6, batch_first=True), last=nn.Linear(6, 3)).double()
    x = random(6, 5, 4)
    rr = classic(model, x, mode="auto")
    rr(x)
    assert list(rr.terms) == ["lstm", "last"][: 1 + (use != "nothing")]
    rr = classic(model, x, mode="layerwise", weight={"lstm": 1})
    seen.clear()
    rr(x)
    made = run(model, x)
    expected = {name: made[name] for name in names}
    if use == "its last step":  # d is what tanh gave, with zeros for the steps before
        expected = {"out": torch.cat([torch.zeros(6, 4, 6).double(), torch.tanh(made["out"][:, -1:])], 1)}
    elif use == "the cell":
        expected = {"cell": torch.tanh(made["cell"])}
    close(seen, list(expected.values()))


def test_rule_for_a_function(rules):
    """With its real arguments, positional or by name."""

    @rules(cube, kind="cubic")
    def undo(op, y, shape):
        assert op.args[0] is None
        assert op.func is cube
        return y @ op.get(1, "weight").T

    layer, x = Odd().double(), random(5, 4)
    (entry,) = classic(layer, x).plan
    assert (entry.name, entry.kind, entry.constrained) == ("", "cubic", True)
    close(rebuild(layer, x), [(forward(layer, x) - layer.bias) @ layer.weight.T])


def test_without_it_the_layer_is_skipped():
    model, x = nn.Sequential(nn.Linear(4, 4), Odd()), torch.randn(5, 4)
    with pytest.warns(NoRuleWarning, match=r"'1'.*cube.*register"):
        rr = classic(model, x)
    assert [entry.constrained for entry in rr.plan] == [True, False]


def test_rule_without_a_weight(rules):
    """Role "activation": re-applied. Role "shape": undone. Role "pass": nothing."""

    class Swap(nn.Module):
        def forward(self, x):
            return x.sort(descending=True).values

    a, b, x = nn.Linear(5, 4), nn.Linear(4, 3), random(6, 5)
    model = chain(a, Swap(), b)
    y = (forward(model, x) - b.bias) @ b.weight
    rules(Swap, role="activation")(lambda op, x: op.module(x))
    close(rebuild(model, x)[1], y.sort(descending=True).values)
    rules(Swap, role="shape")(lambda op, y, shape: y.flip(1))
    close(rebuild(model, x)[1], y.flip(1))


def test_a_rule_replaces_another(rules):
    """Also one of ours; taken out, the layer goes its old way."""

    class Mine(nn.Linear):
        pass

    layer, x = Mine(4, 3).double(), random(5, 4)
    usual = rebuild(layer, x)
    rules(Mine)(lambda op, y, shape: y.new_zeros(shape))
    assert not rebuild(layer, x)[0].any()
    rules(Mine)(lambda op, y, shape: y.new_ones(shape))
    close(rebuild(layer, x)[0], torch.ones_like(x))
    unregister(Mine)
    close(rebuild(layer, x), usual)


def test_operation():
    """Its arguments by place or by name; on other data, never in place."""
    op = Operation(F.leaky_relu, (None, 0.2), {"inplace": True})
    assert (op.get(1, "negative_slope"), op.get(2, "inplace"), op.get(3, "missing", 7)) == (0.2, True, 7)
    x = torch.tensor([-1.0, 1.0])
    assert torch.equal(op(x), torch.tensor([-0.2, 1.0]))
    assert x[0] == -1
    by_name = Operation(torch.add, (), {"input": None, "other": 2}, at=(("input",),))
    nested = Operation(torch.cat, ([torch.zeros(1), None], 0), {}, at=((0, 1),))
    assert torch.equal(by_name(x), x + 2)
    assert torch.equal(nested(x), torch.tensor([0.0, -1.0, 1.0]))
    assert nested.args[0][1] is None, "the operation itself stays as it is"


def half_turn(x):
    """Of the tokens of x (N, T, C) and their features: no rule of ours knows it."""
    if torch.overrides.has_torch_function((x,)):
        return torch.overrides.handle_torch_function(half_turn, (x,), x)
    return x.flip(1, 2)


@pytest.mark.parametrize("known", [{}, {"mask": unknown}, {"batch": untracked}])
def test_what_a_rule_says_of_the_batch_and_of_a_mask(rules, known):
    """By its role a mask is turned, too, and a slice is found; a rule may say that nobody knows."""
    rules(half_turn, role="shape", **known)(lambda op, y, shape: y.flip(1, 2))
    net = Net(lambda m, x: m.b(torch.tanh(half_turn(m.a(x)))), a=nn.Linear(4, 4), b=nn.Linear(4, 3)).double()
    x, real = random(3, 5, 4), (torch.arange(5) < 3).expand(3, 5)
    rr = classic(net, x, fraction=1 / 3)
    if "batch" in known:
        with pytest.warns(UserWarning, match="fraction is ignored: the batch dimension cannot"):
            close(rr(x)[1], classic(net, x)(x)[1])
    elif "mask" in known:
        with pytest.raises(ValueError, match="mask cannot be followed through 'half_turn'"):
            rr(x, reverse_mask=real)
    else:
        close(rr(x, reverse_mask=real)[1], classic(net, x)(x[:1, :3])[1])
