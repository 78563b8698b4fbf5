"""LoRA and other sums of linear maps of one tensor: one layer, with the weight that acts."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from tests.by_hand import Net
from tests.losses import classic
from tests.steps import assert_same, step

S = 1.5
A, B = "lora_A.default", "lora_B.default"


class Lora(nn.Module):
    """As peft adapts a layer: its own result, and beside it two small layers without a bias; the layer is frozen."""

    def __init__(self, base, dropout=0.0):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        if isinstance(base, nn.Conv2d):
            options = {"stride": base.stride, "padding": base.padding, "bias": False}
            down = nn.Conv2d(base.in_channels, 2, base.kernel_size, **options)
            up = nn.Conv2d(2, base.out_channels, 1, bias=False)
        else:
            down, up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)
        self.lora_A, self.lora_B = nn.ModuleDict({"default": down}), nn.ModuleDict({"default": up})
        self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(dropout)})

    def forward(self, x):
        result = self.base_layer(x)
        dtype = result.dtype
        x = self.lora_dropout["default"](x.to(self.lora_A["default"].weight.dtype))
        result = result + self.lora_B["default"](self.lora_A["default"](x)) * S
        return result.to(dtype)

    def acting(self):
        """W + s·BA."""
        down, up = self.lora_A["default"].weight, self.lora_B["default"].weight
        product = up @ down if down.dim() == 2 else torch.einsum("or,rikl->oikl", up[:, :, 0, 0], down)
        return self.base_layer.weight + S * product


FORMS = {
    "as in loralib": lambda m, x: F.linear(x, m.w, m.b) + (F.dropout(x, 0.0) @ m.a.T @ m.v.T) * S,
    "the other way round": lambda m, x: S * (x @ m.a.T @ m.v.T) + F.linear(x, m.w, m.b),
    "alpha": lambda m, x: torch.add(F.linear(x, m.w, m.b), F.linear(F.linear(x, m.a), m.v), alpha=S),
    "in place": lambda m, x: F.linear(x, m.w, m.b).add_(F.linear(F.linear(x, m.a), m.v) * S),
    "subtracted": lambda m, x: F.linear(x, m.w, m.b) - -F.linear(F.linear(x, m.a), m.v) / (1 / S),
    "inside": lambda m, x: F.linear(x, m.w, m.b) + F.linear(S * F.linear(x, m.a), m.v),
    "two halves": lambda m, x: (
        F.linear(x, m.w, m.b) + F.linear(F.linear(x, m.a), m.v) * S / 2 + F.linear(F.linear(x * S, m.a), m.v) / 2
    ),
}


def bare(form):
    return Net(
        form, w=nn.Parameter(torch.randn(7, 8)), b=nn.Parameter(torch.randn(7)),
        a=nn.Parameter(torch.randn(2, 8)), v=nn.Parameter(torch.randn(7, 2)),
    )  # fmt: skip


def around(layer):
    """With layers before and after it."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), layer, nn.Tanh(), nn.Linear(7, 3)).double()


def merged(model, weight, bias):
    """The same network with a plain layer of the weight that acts."""
    other = copy.deepcopy(model)
    other[2] = nn.Linear(8, 7).double()
    other[2].weight.data, other[2].bias.data = weight.detach(), bias.detach()
    return other


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("mode", ["layerwise", "auto", "full"])
def test_it_is_the_layer_of_the_weight_that_acts(name, mode):
    model, x = around(bare(FORMS[name])), torch.randn(5, 6).double()
    m = model[2]
    plain = merged(model, m.w + S * m.v @ m.a, m.b)
    ours, theirs = (classic(one, x, mode=mode) for one in (model, plain))
    torch.testing.assert_close(ours.reconstruct(x), theirs.reconstruct(x))
    plans = [[(e.name, e.source, e.reason) for e in rr.plan] for rr in (ours, theirs)]
    assert plans[0] == plans[1]
    assert ours.plan[1].kind == "sum of linear"
    assert ours.plan.covered == 1


@pytest.mark.parametrize("gradient", ["both", "reverse", "weights"])
def test_the_term_and_its_gradient_by_hand(gradient):
    """Equal to W + s·BA as torch's own parametrisation, too, which is one weight by itself."""
    lora = Lora(nn.Linear(8, 7)).double()
    x = torch.randn(5, 8).double()
    rr = classic(lora, x, scale="sum", gradient=gradient)
    assert [e.name for e in rr.plan] == ["base_layer"]
    _, loss = rr(x)
    loss.backward()
    weight = lora.acting()
    expected = (x - x @ weight.T @ weight).square().sum()
    torch.testing.assert_close(loss, expected)
    small = [lora.get_parameter(f"{name}.weight") for name in (A, B)]
    torch.testing.assert_close([one.grad for one in small], list(torch.autograd.grad(expected, small)))
    assert all(one.grad is None for one in lora.base_layer.parameters())

    class Acting(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = (nn.Parameter(one.detach()) for one in small)

        def forward(self, w):
            return w + S * self.up @ self.down

    plain = copy.deepcopy(lora.base_layer)
    acting = Acting()
    parametrize.register_parametrization(plain, "weight", acting)
    other = classic(plain, x, scale="sum", gradient=gradient)
    _, again = other(x)
    torch.testing.assert_close(again, expected)
    again.backward()
    torch.testing.assert_close([one.grad for one in acting.parameters()], [one.grad for one in small])


@pytest.mark.parametrize("stride, padding, size", [(1, 1, 6), (2, 1, 7), (2, 0, 6)])
def test_convolutions(stride, padding, size):
    lora = Lora(nn.Conv2d(3, 4, 3, stride, padding)).double()
    x = torch.randn(2, 3, size, size).double()
    plain = copy.deepcopy(lora.base_layer)
    plain.weight.data = lora.acting().detach()
    ours, theirs = (classic(one, x, scale="sum", weight={"*": 1}) for one in (lora, plain.requires_grad_()))
    torch.testing.assert_close(ours.reconstruct(x), theirs.reconstruct(x))
    torch.testing.assert_close(ours(x)[1], theirs(x)[1])


def test_dropout_is_passed_over():
    """In the forward pass it acts; back goes the weight without it."""
    lora, x = Lora(nn.Linear(8, 7), 0.5).double(), torch.randn(5, 8).double()
    rr = classic(lora, x)
    torch.manual_seed(3)
    y = lora(x)
    torch.manual_seed(3)
    (back,) = rr.reconstruct(x)
    torch.testing.assert_close(back, (y - lora.base_layer.bias) @ lora.acting())


@pytest.mark.parametrize("gradient", ["reverse", "weights"])
def test_small_layers_in_another_precision(gradient):
    lora, x = Lora(nn.Linear(8, 7)), torch.randn(5, 8).bfloat16()
    lora.base_layer.bfloat16()
    rr = classic(lora, x, gradient=gradient)
    _, loss = rr(x)
    loss.backward()
    whole = classic(copy.deepcopy(lora).double(), x.double())(x.double())[1]
    torch.testing.assert_close(loss.double(), whole, rtol=0.05, atol=0)
    assert lora.lora_A["default"].weight.grad.abs().sum() > 0


@pytest.mark.soak
def test_steps_compiled_sliced_and_frozen():
    torch._dynamo.reset()
    model = nn.Sequential(Lora(nn.Linear(6, 8)), nn.ReLU(), Lora(nn.Linear(8, 7))).double()
    x = torch.randn(4, 6).double()
    rr, eager = classic(model, x, fraction=0.5), classic(copy.deepcopy(model), x, fraction=0.5)
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    for _ in range(2):
        assert_same(step(rr, x, fast), step(eager, x))
    torch._dynamo.reset()
    assert len(eager._engine.cache.plans) == 1
    whole = classic(model, x[:2])
    torch.testing.assert_close(eager(x)[1], whole(x[:2])[1])
    eager.model[0].requires_grad_(False)
    eager(x)
    assert [e.reason for e in eager.plan] == ["frozen, passed through", "the last layer"]
    eager.model[0].base_layer.requires_grad_(True)
    eager(x)
    assert all(e.constrained for e in eager.plan)


OTHERS = {
    "a residual": (lambda m, x: x + m.a(x), ["a"]),
    "an activation between": (lambda m, x: m.a(x) + m.b(torch.relu(m.c(x))), ["a", "c", "b"]),
    "a part is used elsewhere": (lambda m, x: torch.relu((h := m.a(x)) + m.b(x)) * h, ["a", "b"]),
    "of two tensors": (lambda m, x: m.a(x) + m.b(torch.relu(x)), ["a", "b"]),
    "broadcast": (lambda m, x: m.a(x) + F.linear(x, m.b.weight[:1]), ["a", "b"]),
    "a number for each sample": (lambda m, x: m.a(x) + m.b(x) * torch.ones(len(x), 1), ["a", "b"]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays_a_join(name):
    forward, names = OTHERS[name]
    model = Net(forward, a=nn.Linear(6, 6), b=nn.Linear(6, 6), c=nn.Linear(6, 6))
    plan = classic(model, torch.randn(4, 6)).plan
    assert [(e.name, e.kind) for e in plan] == [(one, "linear") for one in names]
