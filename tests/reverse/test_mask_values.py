"""The values in padding, even NaN, change neither the loss nor, where a task's gradient is finite, the gradient."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import Net
from tests.reverse.mask_cases import LONG, REAL, X, real, same, step

WIDTH = X.shape[-1]
VALUES = st.sampled_from([math.nan, math.inf, -math.inf, 1e30, -1e15, 1e6, 0.0])


def products(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x)))


def normed(m: Any, x: Tensor) -> Tensor:
    """Norms of every token by itself."""
    return m.b(torch.relu(m.norm(m.a(m.norm(x)))))


def residual(m: Any, x: Tensor) -> Tensor:
    return m.b(x + torch.relu(m.a(x)))


def convolved(m: Any, x: Tensor) -> Tensor:
    """Causal, so that nothing of padding comes before it."""
    y = torch.tanh(m.conv(m.a(x).mT)[..., : x.shape[1]])
    return m.b(m.conv(y)[..., : x.shape[1]].mT)


def net(way: Any, cleaned: bool) -> nn.Module:
    """``cleaned``: the model leaves padding out by itself, so that no NaN is in its own gradient."""
    torch.manual_seed(0)
    parts = {"a": nn.Linear(WIDTH, WIDTH), "b": nn.Linear(WIDTH, WIDTH), "norm": nn.LayerNorm(WIDTH)}
    conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=2)

    def forward(m: Any, x: Tensor) -> Tensor:
        return way(m, x.masked_fill(~real(1, x.shape[1])[..., None], 0.0) if cleaned else x)

    return Net(forward, conv=conv, **parts).double()


ways = st.sampled_from([products, normed, residual, convolved])
modes = st.sampled_from(["auto", "layerwise"])
scales = st.sampled_from(["relative", "ratio", "anchored", "mean", "sum"])
gradients = st.sampled_from(["both", "reverse", "weights"])
fractions = st.sampled_from([0.5, 1.0])


def filled(value: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """The batch with a value in its padding, and cut."""
    x = X.to(dtype)
    return x.masked_fill(~real()[..., None], value), x[:, :REAL].contiguous()


@settings(max_examples=2 * settings.default.max_examples)
@given(ways, modes, scales, gradients, fractions, VALUES, st.booleans())
def test_loss_and_gradient_are_those_of_the_cut_batch(
    way: Any, mode: str, scale: str, gradient: str, fraction: float, value: float, cleaned: bool
):
    """The gradient, where the model leaves padding out by itself, or it is finite, or no gradient flows through the
    model's own pass. The padding stands in the input, with which the first layer is compared."""
    chosen: dict[str, Any] = {"mode": mode, "scale": scale, "gradient": gradient, "fraction": fraction, "weight": 1.0}
    padded, cut = filled(value)
    model = net(way, cleaned)
    loss, terms, grads = step(Racecar(model, X, **chosen), padded, reverse_mask=real())
    expected = step(Racecar(model, cut, **chosen), cut)
    if not (cleaned or math.isfinite(value) or gradient == "weights"):
        grads = expected[2]
    same((loss, terms, grads), expected)


def test_a_norm_without_eps():
    """Of a row of zeros it would be NaN, in the reverse pass, too."""
    model = Net(lambda m, x: m.b((y := m.a(x)) / y.norm(dim=-1, keepdim=True)), a=nn.Linear(5, 6), b=nn.Linear(6, 4))
    model.b.register_parameter("bias", None)
    model.double()
    padded, cut = filled(1.0)
    chosen: dict[str, Any] = {"mode": "layerwise", "weight": 1.0}
    ours = step(Racecar(model, X, **chosen), padded, reverse_mask=real())
    same(ours, step(Racecar(model, cut, **chosen), cut))


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_in_single_precision(value: float):
    """The square of 1e30 overflows in float32."""
    padded, cut = filled(value, torch.float32)
    model = net(normed, cleaned=False).float()
    rr = Racecar(model, cut, weight=1.0)
    torch.testing.assert_close(rr(padded, reverse_mask=real())[1], rr(cut)[1])


def test_a_nan_that_is_real_is_not_hidden():
    x = X.clone()
    x[0, REAL - 1, 0] = math.nan
    assert Racecar(net(products, cleaned=False), X, weight=1.0)(x, reverse_mask=real())[1].isnan()


def test_reconstructions_have_nothing_of_the_padding():
    """d' of the last layer starts at the output, whose padding is NaN."""
    padded, _ = filled(math.nan)
    back = Racecar(net(products, cleaned=False), X, weight=1.0).reconstruct(padded, reverse_mask=real())
    assert all(one.shape[1] == LONG and one.isfinite().all() for one in back)
