"""Matrix layers go back as their adjoint, however they are written."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tests.rules.common import chain, check_layer, check_rule, close, random, rebuild, widely

sizes = st.integers(1, 5)


@widely
@given(st.lists(sizes, max_size=3), sizes, sizes, st.booleans())
def test_linear(leading, width, out, bias):
    layer = nn.Linear(width, out, bias=bias).double()
    check_layer(layer, random(*leading, width))
    check_rule(F.linear, (None, layer.weight, layer.bias), random(*leading, width))


@widely
@given(st.lists(sizes, min_size=1, max_size=3), sizes, sizes)
def test_conv1d_of_hugging_face(leading, width, out):
    pytorch_utils = pytest.importorskip("transformers.pytorch_utils")
    layer = pytorch_utils.Conv1D(out, width)
    nn.init.normal_(layer.bias)
    check_layer(layer, random(*leading, width))


@widely
@given(sizes, sizes, sizes, st.sampled_from([0.5, 1, -2]), st.sampled_from([0, 1, 3]))
def test_addmm(rows, width, out, alpha, beta):
    args = (random(out), None, random(width, out))
    check_rule(torch.addmm, args, random(rows, width), at=1, alpha=alpha, beta=beta)
    check_rule(torch.addmm, (random(out), random(rows, width), None), random(width, out), at=2, alpha=alpha, beta=beta)


class Weight(nn.Module):
    """A weight of its own, used by a function."""

    def __init__(self, f, *shape, bias=()):
        super().__init__()
        self.f, self.weight = f, nn.Parameter(torch.randn(*shape))
        self.bias = nn.Parameter(torch.randn(bias)) if bias else None

    def forward(self, x):
        y = self.f(x, self.weight)
        return y if self.bias is None else y + self.bias


SPELLINGS = {  # f(x, W), the shapes of W, x and the bias
    "x @ W": (lambda x, w: x @ w, (4, 3), (2, 4), ()),
    "x @ W + b": (lambda x, w: x @ w, (4, 3), (2, 4), (3,)),
    "x @ W + b of images": (lambda x, w: x @ w, (4, 3), (2, 5, 6, 4), (3,)),
    "W @ x": (lambda x, w: w @ x, (3, 4), (4, 2), ()),
    "W @ x + b": (lambda x, w: w @ x, (3, 4), (2, 4, 5), (3, 1)),
    "W x of a vector": (lambda x, w: w @ x, (3, 4), (4,), (3,)),
    "x @ w of a vector": (lambda x, w: x @ w, (4,), (2, 4), ()),
    "x @ W, one matrix per sample": (lambda x, w: x @ w, (2, 4, 3), (2, 5, 4), (3,)),
    "W @ x, a stack of matrices": (lambda x, w: w @ x, (3, 1, 5, 4), (2, 4, 2), ()),
    "torch.matmul": (torch.matmul, (4, 3), (2, 4), (3,)),
    "torch.matmul by name": (lambda x, w: torch.matmul(input=x, other=w), (4, 3), (2, 4), ()),
    "torch.matmul, W by name": (lambda x, w: torch.matmul(x, other=w), (4, 3), (2, 4), ()),
    "Tensor.matmul": (lambda x, w: w.matmul(x), (3, 4), (4, 2), ()),
    "torch.mm": (torch.mm, (4, 3), (2, 4), (3,)),
    "torch.mm by name": (lambda x, w: torch.mm(x, mat2=w), (4, 3), (2, 4), ()),
    "torch.mv": (lambda x, w: torch.mv(w, x), (3, 4), (4,), ()),
    "torch.bmm": (torch.bmm, (2, 4, 3), (2, 5, 4), ()),
    "addmm by name": (lambda x, w: torch.addmm(x.new_ones(3), x, mat2=w), (4, 3), (2, 4), ()),
    "F.linear": (F.linear, (3, 4), (2, 4), (3,)),
    "F.linear by name": (lambda x, w: F.linear(input=x, weight=w), (3, 4), (2, 4), (3,)),
    "x @ W.T": (lambda x, w: x @ w.T, (3, 4), (2, 4), (3,)),
    "x @ (2 W)": (lambda x, w: x @ (2 * w), (4, 3), (2, 4), (3,)),
    "einsum": (lambda x, w: torch.einsum("bi,io->bo", x, w), (4, 3), (2, 4), (3,)),
    "einsum, W first": (lambda x, w: torch.einsum("oi,bit->bot", w, x), (3, 4), (2, 4, 5), (3, 1)),
    "einsum of heads": (lambda x, w: torch.einsum("bti,hio->bhto", x, w), (2, 4, 3), (2, 5, 4), ()),
    "tensordot": (lambda x, w: torch.tensordot(x, w, dims=([1], [0])), (4, 3), (2, 4, 5), ()),
    "tensordot, W first": (lambda x, w: torch.tensordot(w, x, dims=1), (3, 4), (4, 2), ()),
    "inner": (torch.inner, (3, 4), (2, 4), (3,)),
    "bilinear of a constant": (lambda x, w: F.bilinear(x, x.new_ones(2, 3), w), (5, 4, 3), (2, 4), (5,)),
}


@pytest.mark.parametrize("f, weight, x, bias", SPELLINGS.values(), ids=SPELLINGS)
def test_spellings(f, weight, x, bias):
    torch.manual_seed(0)
    check_layer(Weight(f, *weight, bias=bias), random(*x))


def test_bare_weights_in_a_chain():
    """The bias that follows x @ W belongs to the layer, also with a view in between."""
    torch.manual_seed(0)
    first, second, x = nn.Linear(6, 4), nn.Linear(4, 3), random(5, 6)
    a, b = Weight(torch.matmul, 6, 4, bias=(4,)), Weight(lambda x, w: (x @ w).view(5, 3), 4, 3, bias=(3,))
    for module, layer in ((a, first), (b, second)):
        module.weight.data, module.bias.data = layer.weight.data.T, layer.bias.data
    for mode in ("layerwise", "full"):
        close(rebuild(chain(a, nn.Tanh(), b), x, mode), rebuild(chain(first, nn.Tanh(), second), x, mode))
