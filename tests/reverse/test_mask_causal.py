"""A mask and causal convolutions: what stands at t is of positions up to t, so a padded batch is the sum of its
samples, each cut to its own length."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import Net
from tests.reverse.mask_cases import same, step

CHANNELS, LONG = 4, 7
CUTS = {
    "to its length": lambda m, y, length: y[..., :length],
    "by its padding": lambda m, y, length: y[:, :, : -m.reach].contiguous(),
    "padded before": None,
}
ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "tanh": torch.tanh, "silu": F.silu}


def causal(m: Any, conv: nn.Conv1d, x: Tensor) -> Tensor:
    """One causal convolution of x (N, C, T), cut in the way that the net has."""
    if m.cut is None:
        return conv(F.pad(x, (m.reach, 0)))
    return m.cut(m, conv(x), x.shape[-1])


def stacked(m: Any, x: Tensor) -> Tensor:
    for conv in m.convs:
        x = m.activation(causal(m, conv, x))
    return x


def residual(m: Any, x: Tensor) -> Tensor:
    """With a join straight after the cut, as in WaveNet."""
    for conv in m.convs:
        x = x + m.activation(causal(m, conv, x))
    return x


def within(m: Any, x: Tensor) -> Tensor:
    """Between products of every token by itself, (N, T, C), as in Mamba."""
    return m.b(m.activation(stacked(m, m.a(x.mT).mT)).mT).mT


def net(way: Any, cut: str, activation: str, kernel: int, dilation: int, groups: int, bias: bool) -> nn.Module:
    torch.manual_seed(0)
    reach = (kernel - 1) * dilation
    settings: dict[str, Any] = {
        "padding": reach if CUTS[cut] else 0,
        "dilation": dilation,
        "groups": groups,
        "bias": bias,
    }
    convs = nn.ModuleList([nn.Conv1d(CHANNELS, CHANNELS, kernel, **settings) for _ in range(2)])
    parts: dict[str, Any] = {"cut": CUTS[cut], "activation": ACTIVATIONS[activation], "reach": reach, "convs": convs}
    if way is within:
        parts |= {"a": nn.Linear(CHANNELS, CHANNELS), "b": nn.Linear(CHANNELS, CHANNELS)}
    return Net(way, **parts).double()


nets = st.builds(
    net,
    st.sampled_from([stacked, residual, within]),
    st.sampled_from(list(CUTS)),
    st.sampled_from(list(ACTIVATIONS)),
    kernel=st.integers(2, 4),
    dilation=st.integers(1, 3),
    groups=st.sampled_from([1, CHANNELS]),
    bias=st.booleans(),
)
X = torch.randn(3, CHANNELS, LONG, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@given(
    nets,
    st.sampled_from(["auto", "layerwise", "full"]),
    st.sampled_from(["both", "reverse", "weights"]),
    st.lists(st.integers(1, LONG), min_size=3, max_size=3),
)
def test_a_padded_batch_is_the_sum_of_its_samples(net: nn.Module, mode: str, gradient: str, lengths: list[int]):
    """Loss, terms and gradient, each sample by itself and as long as it is."""
    if mode == "full" and net.function is residual:
        mode = "auto"
    settings: dict[str, Any] = {"mode": mode, "gradient": gradient, "scale": "sum", "reduction": "sum", "weight": 1.0}
    mask = torch.arange(LONG) < torch.tensor(lengths)[:, None]
    padded = step(Racecar(net, X, **settings), X, reverse_mask=mask[:, None])
    each = []
    for x, length in zip(X, lengths, strict=True):
        alone = x[None, :, :length].contiguous()
        each.append(step(Racecar(net, alone, **settings), alone))
    losses, terms, grads = zip(*each, strict=True)
    of_terms = {name: sum(one[name] for one in terms) for name in terms[0]}
    of_grads = {name: None if grads[0][name] is None else sum(one[name] for one in grads) for name in grads[0]}
    same(padded, (sum(losses), of_terms, of_grads))


@given(
    nets,
    st.sampled_from(["auto", "layerwise"]),
    st.sampled_from(["relative", "ratio", "anchored", "mean"]),
    st.sampled_from([1 / 3, 2 / 3, 1.0]),
)
def test_a_padded_batch_is_the_cut_batch(net: nn.Module, mode: str, scale: str, fraction: float):
    settings: dict[str, Any] = {"mode": mode, "scale": scale, "weight": 1.0, "fraction": fraction}
    cut = X[..., :4].contiguous()
    padded = step(Racecar(net, X, **settings), X, reverse_mask=(torch.arange(LONG) < 4).expand(3, 1, LONG))
    same(padded, step(Racecar(net, cut, **settings), cut))


def test_the_cut_is_part_of_the_layer():
    """By hand: the way back starts at what the next layer reads, and zeros stand for what was cut off."""
    torch.manual_seed(0)
    a, b = (nn.Conv1d(CHANNELS, CHANNELS, 3, padding=2, bias=False).double() for _ in range(2))
    causal_net = Net(lambda m, x: m.b(m.a(x)[..., :LONG])[..., :LONG], a=a, b=b)
    middle = a(X)[..., :LONG]
    out = b(middle)[..., :LONG]

    def back(conv: nn.Conv1d, y: Tensor) -> Tensor:
        return F.conv_transpose1d(F.pad(y, (0, 2)), conv.weight, padding=2)

    rr = Racecar(causal_net, X, mode="layerwise")
    for found, expected in zip(rr.reconstruct(X), (back(a, middle), back(b, out)), strict=True):
        torch.testing.assert_close(found, expected)
    rr.mode = "full"
    torch.testing.assert_close(rr.reconstruct(X)[0], back(a, back(b, out)))


def gated(m: Any, x: Tensor) -> Tensor:
    """Two cuts of one convolution."""
    y = m.a(x)
    return torch.tanh(y[..., :LONG]) * torch.sigmoid(y[..., :LONG])


def test_a_mask_is_refused_where_two_cuts_are_made():
    """The way back starts at what is not cut, in which padding is mixed with what is real."""
    rr = Racecar(Net(gated, a=nn.Conv1d(CHANNELS, CHANNELS, 3, padding=2).double()), X, weight=1.0)
    rr(X)
    with pytest.raises(ValueError, match="mask cannot be .*conv1d"):
        rr(X, reverse_mask=torch.ones(3, 1, LONG, dtype=torch.bool))
