"""λ as a tensor: a weight for every element of a sample."""

import pytest
import torch
from torch import Tensor, nn

from tests.by_hand import Net, close, undo_conv, undo_linear
from tests.losses import classic
from tests.reverse.weight_cases import chain, terms


def formula(d: Tensor, back: Tensor, w: Tensor, scale: str) -> Tensor:
    """The three scales with w: Σ w (d − d')², its mean over all elements, or over Σ d² of the features with w ≠ 0."""
    w = w.double().expand(d.shape[1:])
    total = (w * (d - back) ** 2).sum()
    if scale == "mean":
        return total / d.numel()
    return total if scale == "sum" else total / (d**2)[:, w != 0].sum().detach()


ROW_WEIGHTS = {
    "some": torch.tensor([1.0, 0, 0, 2.5]),
    "scalar": torch.tensor(0.5),
    "one element": torch.tensor([2.0]),
    "integers": torch.tensor([1, 0, 3, 0]),
}


@pytest.mark.parametrize("scale", ["relative", "mean", "sum"])
@pytest.mark.parametrize("name", ROW_WEIGHTS)
def test_tensor_over_rows(name: str, scale: str):
    net, x = chain()
    x.requires_grad_()
    w = ROW_WEIGHTS[name]
    rr = classic(net, x.detach(), mode="layerwise", scale=scale, weight={"0": w})
    _, loss = rr(x)
    expected = formula(x, undo_linear(net[0], torch.tanh(net[0](x))), w, scale)
    close(loss, expected)
    close(rr.terms["0"], expected.detach())
    wanted = [x, net[0].weight]
    close(torch.autograd.grad(loss, wanted), torch.autograd.grad(expected, wanted))


PICTURE_WEIGHTS = {
    "channels": torch.tensor([1.0, 0, 3]).view(3, 1, 1),
    "places": torch.linspace(0, 1, 36).view(6, 6),
    "all": torch.linspace(0, 2, 3 * 36).view(3, 6, 6),
}


@pytest.mark.parametrize("scale", ["relative", "mean", "sum"])
@pytest.mark.parametrize("name", PICTURE_WEIGHTS)
def test_tensor_over_pictures(name: str, scale: str):
    torch.manual_seed(0)
    net, x = nn.Conv2d(3, 5, 3, padding=1).double(), torch.rand(4, 3, 6, 6, dtype=torch.float64)
    w = PICTURE_WEIGHTS[name]
    _, loss = classic(net, x, scale=scale, weight={"*": w})(x)
    close(loss, formula(x, undo_conv(net, net(x)), w, scale))


def test_tensor_and_numbers_together():
    net, x = chain()
    w = torch.tensor([1.0, 0, 0, 2.5])
    _, loss = classic(net, x, mode="layerwise", scale="sum", weight={"*": 0.5, "0": w})(x)
    by_hand = terms(net, x)
    first = formula(x, undo_linear(net[0], torch.tanh(net[0](x))), w, "sum")
    close(loss, first + 0.5 * (by_hand["2"] + by_hand["4"]))


def test_the_batch_dimension_is_left_out_also_where_it_is_not_the_first():
    """d_m is (T, N, C): a weight per step is (T, 1)."""
    torch.manual_seed(0)
    net = Net(lambda m, x: m.b(torch.tanh(m.a(x.transpose(0, 1)))), a=nn.Linear(4, 6), b=nn.Linear(6, 3)).double()
    x, w = torch.randn(5, 7, 4, dtype=torch.float64), torch.arange(7.0)[:, None]
    _, loss = classic(net, x, mode="layerwise", scale="sum", weight={"b": w})(x)
    d = torch.tanh(net.a(x.transpose(0, 1)))
    back = torch.tanh(undo_linear(net.b, net.b(d)))
    close(loss, (w[:, None] * (d - back) ** 2).sum())


def test_disentangling():
    """RR¹ on some input dimensions: the whole reverse pass, compared at those inputs alone."""
    net, x = chain()
    w = torch.tensor([1.0, 0, 0, 1.33])
    rr = classic(net, x, mode="input", scale="sum", weight={"*": 1, "0": w})
    _, loss = rr(x)
    back = net(x)
    for i in (4, 2, 0):
        back = undo_linear(net[i], back)
        back = torch.tanh(back) if i else back
    expected = (w * (x - back) ** 2).sum()
    close(loss, expected)
    assert list(rr.terms) == ["0"]
    ours, theirs = (torch.autograd.grad(one, net.parameters()) for one in (loss, expected))
    close(ours, theirs)
    assert ours[-2].abs().max() > 0, "the last layer is on the way"


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.float16])
def test_a_schedule_multiplies_without_overflow(dtype: torch.dtype):
    """1000 times a small integer, or a number in half precision, is more than these hold."""
    net, x = chain()
    w = torch.tensor([1, 0, 100, 1]).to(dtype)
    rr, twin = (classic(net, x, mode="layerwise", weight={"0": one}) for one in (w, w.double()))
    rr.schedule(1000)
    close(rr(x)[1], 1000 * twin(x)[1])
