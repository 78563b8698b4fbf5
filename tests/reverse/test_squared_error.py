"""Σ (d − d')² of activations in low precision or channels last, and its gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.reverse.terms import SquaredError, squared_error

SHAPES = st.sampled_from([(2, 3), (3, 2, 4), (2, 3, 4, 5), (1, 2, 3, 2, 2)])


def pair(shape, dtype, layout=torch.contiguous_format):
    torch.manual_seed(0)
    made = (torch.randn(shape).to(dtype).contiguous(memory_format=layout) for _ in range(2))
    return [one.requires_grad_() for one in made]


@given(shape=SHAPES, dtype=st.sampled_from([torch.bfloat16, torch.float16]))
def test_low_precision(shape, dtype):
    """The value, of differences in the precision of the activations, and the gradient of each side."""
    d, reverse = pair(shape, dtype)
    value = squared_error(d, reverse, None)
    assert value.dtype == torch.float32
    value.mul(3).backward()
    truth = (d - reverse).detach().double().square().sum()
    assert value.item() == pytest.approx(truth.item(), rel=1e-5)
    expected = 6 * (d.detach().double() - reverse.detach().double())
    for gradient, sign in ((d.grad, 1), (reverse.grad, -1)):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.double(), sign * expected, rtol=1e-2, atol=1e-2)


def test_strides_stay():
    """Gradients have the memory format of their activations; else convolutions are slow."""
    for dtype in (torch.float32, torch.bfloat16):
        d, reverse = pair((2, 4, 3, 5), dtype, torch.channels_last)
        squared_error(d, reverse, None).backward()
        for one in (d, reverse):
            assert one.grad.is_contiguous(memory_format=torch.channels_last)
            assert not one.grad.is_contiguous()


def test_gradients_of_gradients():
    d, reverse = pair((2, 3), torch.float64)
    check = lambda d, reverse: SquaredError.apply(d, reverse, torch.float64)  # noqa: E731
    assert torch.autograd.gradcheck(check, (d, reverse))
    assert torch.autograd.gradgradcheck(check, (d, reverse))


def test_nothing_but_the_activations_is_kept():
    d, reverse = pair((4, 8), torch.bfloat16)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        squared_error(d, reverse, None)
    large = [one for one in kept if one.dim()]
    assert {one.data_ptr() for one in large} <= {d.data_ptr(), reverse.data_ptr()}
