"""Gram matrices, entry by entry; zero for orthogonal weights; and the gradients of all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.orthogonality import dso, mc, ocnn, so, srip
from tests.orthogonality.common import ALL, SIDES, close, drawn, gram_error, orthonormal, random

# Gram matrices


def test_by_hand():
    w = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    # WᵀW − I = diag(3, 1); W Wᵀ − I = [[3, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert so(w) == so(w, side="columns") == 10
    assert so(w, side="rows") == 11
    assert dso(w) == 21
    assert mc(w) == mc(w.T) == 3
    assert mc(torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])) == 1
    close(srip(w, power=50), 3, 1e-6)
    close(srip(w, power=50, squared=True, side="rows"), 9, 1e-6)
    assert ocnn(w) == 10
    assert ocnn(w, side="rows") == 11


shapes = st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=5).map(tuple), min_size=1, max_size=4)


@drawn
@given(shapes, st.sampled_from(SIDES))
def test_formulas(shapes, side):
    torch.manual_seed(1)
    drawn = [random(*shape) for shape in shapes]
    errors = [gram_error(w, side) for w in drawn]
    close(so(drawn, side=side), sum((e**2).sum() for e in errors))
    close(mc(drawn, side=side), sum(abs(e).max() for e in errors))
    close(dso(drawn), sum((gram_error(w, side) ** 2).sum() for w in drawn for side in ("rows", "columns")))


# Zero


FLAT = [(4, 4), (3, 5), (6, 2), (4, 2, 3), (9, 2, 2, 2), (2, 3, 2, 2, 2)]


@pytest.mark.parametrize("shape", FLAT)
@pytest.mark.parametrize("side", SIDES)
def test_zero_for_orthogonal_weights(shape, side):
    w = orthonormal(*shape)
    rows, columns = w.flatten(1).shape
    reachable = side == "smaller" or (rows <= columns if side == "rows" else columns <= rows)
    for f in (so, mc, srip):
        assert (abs(f(w, side=side)) < 1e-12) == reachable
        assert f(w * 1.01, side=side) > 1e-4
    close(dso(w), abs(rows - columns))


@pytest.mark.parametrize("f", ALL)
def test_the_gradient_is_zero_at_zero(f):
    k = torch.eye(3).unsqueeze(-1).requires_grad_()
    value = f(k)
    value.backward()
    assert value == 0
    assert torch.equal(k.grad, torch.zeros_like(k))


# Gradients


@pytest.mark.parametrize("f, side", [(f, side) for f in (so, mc, srip, ocnn) for side in SIDES] + [(dso, None)])
@pytest.mark.parametrize("shape", [(5, 2), (2, 2, 3)])
def test_gradients(f, side, shape):
    def value(*w):
        how = {"side": side} if side else {}
        if f is srip:
            how |= {"power": 3, "generator": torch.Generator().manual_seed(4)}
        if f is ocnn and len(shape) > 2:
            how |= {"stride": 2}
        return f(w, **how)

    w = [random(*shape).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(value, w)
