"""Affine operations without a rule go back by a vector-Jacobian product; what is not affine is left out, by name."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import NoRuleWarning, NothingToReverse
from racecar.rules import Operation
from racecar.rules.fallback import adjoint, is_affine
from tests.losses import classic
from tests.rules.common import chain, close, orthogonal, random, rebuild, same_product

AFFINE = {
    "einsum": lambda x: torch.einsum("bi,io->bo", x, torch.ones(6, 3, dtype=x.dtype)), "cumsum": lambda x: x.cumsum(1),
    "diff": lambda x: torch.diff(x), "fold": lambda x: F.fold(x[..., None], (2, 3), (2, 3)),
    "outer": lambda x: torch.kron(x, torch.ones(1, 2)),
    "with a bias": lambda x: torch.addcmul(torch.ones(6, dtype=x.dtype), x, torch.full((6,), 3.0, dtype=x.dtype)),
    "tensordot": lambda x: torch.tensordot(x, torch.ones(6, 2, dtype=x.dtype), 1),
    "unfold": lambda x: x.unfold(1, 3, 2), "tril": torch.tril,
}  # fmt: skip
OTHER = {
    "relu": torch.relu, "square": torch.square, "softmax": lambda x: x.softmax(1), "norm": lambda x: F.normalize(x),
    "sort": lambda x: x.sort().values, "glu": F.glu, "sign": torch.sign, "zero": torch.zeros_like,
    "cdist": lambda x: torch.cdist(x, torch.ones(2, 6, dtype=x.dtype)), "integers": lambda x: x.argmax(1),
    "fails": lambda x: x.view(1000), "several": lambda x: x.chunk(2),
}  # fmt: skip


@pytest.mark.parametrize("f", AFFINE.values(), ids=AFFINE)
def test_adjoint(f):
    torch.manual_seed(0)
    op, x = Operation(f, (None,), {}), random(4, 6)
    bias = op(torch.zeros_like(x))
    y = torch.randn_like(bias)
    same_product(op(x) - bias, y, x, adjoint(op, y + bias, x.shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_is_affine(dtype):
    """Told apart in every precision, without moving the random state."""
    state = torch.get_rng_state()
    for names, expected in ((AFFINE, True), (OTHER, False)):
        told = {name: is_affine(Operation(f, (None,), {}), torch.ones(4, 6, dtype=dtype)) for name, f in names.items()}
        if dtype.itemsize == 2:  # these have no kernel for it on a CPU
            told = {name: one for name, one in told.items() if name not in ("fold", "outer", "cdist")}
        assert told == dict.fromkeys(told, expected)
    assert torch.equal(state, torch.get_rng_state())


class Weight(nn.Module):
    def __init__(self, f, *shape):
        super().__init__()
        self.f, self.weight = f, nn.Parameter(torch.randn(*shape))

    def forward(self, x):
        return self.f(x, self.weight)


def test_einsum_is_a_layer():
    """With name, term and value of the linear layer that it is."""
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4, bias=False), random(3, 6)
    einsum = Weight(lambda x, w: torch.einsum("bi,oi->bo", x, w), 4, 6)
    einsum.weight.data = layer.weight.data
    one, two = (
        classic(chain(part, nn.ReLU(), nn.Linear(4, 4)), x, "layerwise", scale="sum") for part in (layer, einsum)
    )
    one.model[2].load_state_dict(two.model[2].state_dict())
    close(one(x)[1], two(x)[1])
    close(dict(one.terms), dict(two.terms))
    assert "einsum" in two.plan[0].kind
    assert "vjp" in two.plan[0].kind


def test_rearrangement_without_a_weight_is_passed():
    """An orthogonal operation of no known kind is undone by its transpose."""
    x = random(3, 4, 6)
    close(rebuild(chain(lambda x: torch.einsum("bti->tib", x).rot90().fliplr(), orthogonal(3)), x), [x])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_without_a_rule_is_skipped_by_name(dtype):
    kernel = Weight(lambda x, w: torch.hypot(x, w), 4)
    model, x = nn.Sequential(nn.Linear(6, 4), kernel, nn.Linear(4, 4)).to(dtype), torch.randn(3, 6).to(dtype)
    with pytest.warns(NoRuleWarning, match=r"'1'.*hypot.*register"):
        rr = classic(model, x)
    skipped = next(entry for entry in rr.plan if entry.name == "1")
    assert not skipped.constrained
    assert "hypot" in skipped.reason
    assert rr.plan[0].source == "forward", "above it nothing comes back to start from"
    output, loss = rr(x)
    assert loss.isfinite()
    assert list(rr.terms) == ["0", "2"]
    assert rr.reconstruct(x)[1] is None


def test_nothing_but_layers_without_a_rule():
    model, x = Weight(torch.hypot, 4), torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)
        with pytest.raises(NothingToReverse, match="register"):
            classic(model, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_unknown_function_ends_the_way_by_name(dtype):
    model = chain(nn.Linear(6, 4), lambda x: x.cumprod(1), nn.Linear(4, 4)).to(dtype)
    x = torch.randn(3, 6).to(dtype)
    with pytest.warns(NoRuleWarning, match=r"cumprod.*'2'.*register"):
        rr = classic(model, x)
    assert rr(x)[1].isfinite()
    assert [entry.source for entry in rr.plan] == ["forward", "forward"]


def bend(x, weight):
    return x + (weight[0] if isinstance(weight, (list, tuple)) else weight) * x.square()


PLACES = {
    "by position": lambda w: ((None, w), {}),
    "by keyword": lambda w: ((None,), {"weight": w}),
    "in a list": lambda w: ((None, [w]), {}),
    "in a tuple by keyword": lambda w: ((None,), {"weight": (w,)}),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_weight_that_starts_at_zero_bends_as_any_other(place):
    """Wherever it stands among the arguments: at zero every such operation would look affine."""
    x = torch.ones(4, 6)
    for weight in (torch.zeros(6), torch.randn(6)):
        assert not is_affine(Operation(bend, *place(weight)), x)
        assert is_affine(Operation(lambda x, weight: x + bend(torch.zeros_like(x), weight), *place(weight)), x)


def test_a_layer_that_starts_at_zero_by_keyword_is_no_affine_one():
    """x⁰ is 1, which is affine; the next step of training makes it bend."""
    power = Weight(lambda x, w: torch.float_power(x.abs(), exponent=w).float(), 4)
    nn.init.zeros_(power.weight)
    with pytest.warns(NoRuleWarning, match="'1'.*float_power"):
        rr = classic(nn.Sequential(nn.Linear(6, 4), power, nn.Linear(4, 4)), torch.randn(3, 6))
    assert [(entry.name, entry.constrained) for entry in rr.plan] == [("0", True), ("1", False), ("2", True)]
