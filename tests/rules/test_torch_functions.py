"""The tables of torch's functions."""

import torch
from torch.nn import functional as F

from racecar.rules.torch_functions import INPLACE_POSITION, METHOD_AS_FUNCTION, OUT_OF_PLACE, forms


def test_forms():
    """Every spelling, in place or not, and its twin that leaves its argument alone."""
    assert {torch.relu, F.relu, torch.Tensor.relu, torch.relu_, F.relu_, torch.Tensor.relu_} <= set(forms("relu"))
    assert OUT_OF_PLACE[torch.Tensor.relu_] is torch.Tensor.relu
    assert OUT_OF_PLACE[torch.Tensor.__iadd__] is torch.Tensor.__add__
    assert forms("no_such_function") == ()


def test_every_twin_does_the_same():
    """What leaves its argument alone, and what torch.compile can call, give what the method gives."""
    x = torch.rand(3, 4) + 0.5
    for name in ("relu_", "exp_", "abs_", "neg_", "sqrt_", "tanh_", "t_", "fill_diagonal_"):
        method, args = getattr(torch.Tensor, name), [2.0] if name == "fill_diagonal_" else []
        kept, expected = x.clone(), method(x.clone(), *args)
        assert torch.equal(OUT_OF_PLACE[method](kept, *args), expected), name
        assert torch.equal(kept, x), name
    assert torch.equal(METHOD_AS_FUNCTION[torch.Tensor.exp](x), x.exp())
    for func in (F.relu, F.dropout, F.leaky_relu, F.threshold):
        assert list(func.__code__.co_varnames).index("inplace") == INPLACE_POSITION[func]
