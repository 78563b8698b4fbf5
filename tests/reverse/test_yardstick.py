"""The denominators of terms: rounding noise counts as 0, true small values count; and the mean over layers."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import Net, close, squares
from tests.losses import classic
from tests.networks import NETWORKS, call
from tests.reverse.mask_cases import step

# --- where d is rounding noise ------------------------------------------------------------------------------------


def blocks(norm: type[nn.Module] | None, *args: int) -> nn.Module:
    """Convolutions, each with a norm and a ReLU."""
    parts: list[nn.Module] = []
    for before in (3, 8):
        parts += [nn.Conv2d(before, 8, 3, padding=1), *([norm(*args)] if norm else []), nn.ReLU()]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(8 * 64, 5))


def tokens() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 5))


NETS = {
    "batch": lambda: blocks(nn.BatchNorm2d, 8),
    "group": lambda: blocks(nn.GroupNorm, 8, 8),
    "instance": lambda: blocks(nn.InstanceNorm2d, 8),
    "layer": tokens,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", NETS)
def test_a_blank_batch_behind_a_norm(name: str, dtype: torch.dtype):
    """A norm leaves the rounding errors of values that are all alike. Divided by those, the loss was 1e11."""
    torch.manual_seed(0)
    net = NETS[name]().to(dtype)
    for value in (0.0, 200.0):
        x = torch.full((8, 8) if name == "layer" else (8, 3, 8, 8), value, dtype=dtype)
        rr = classic(net, x)
        for rr.mode, rr.scale in itertools.product(("auto", "layerwise"), ("relative", "ratio")):
            net.zero_grad()
            _, loss = rr(x)
            loss.backward()
            assert loss < 10
            assert max(p.grad.abs().max() for p in net.parameters() if p.grad is not None) < 100


RANGE = {torch.float32: 1e18, torch.float64: 1e150}
"""As docs/loss.md has it: the most that √Σd² of a layer may be, and 1 over the least root mean square."""


def norms(net: nn.Sequential, x: Tensor) -> tuple[float, float]:
    """The smallest root mean square of a layer's d, and the largest √Σd²."""
    found = []
    for module in net:
        found += [x] if isinstance(module, nn.Linear) else []
        x = module(x)
    return min(d.square().mean().sqrt().item() for d in found), max(d.norm().item() for d in found)


@given(
    st.floats(0, 1),
    st.sampled_from(list(RANGE)),
    st.sampled_from(["auto", "layerwise"]),
    st.sampled_from(["relative", "ratio"]),
    st.sampled_from(["both", "reverse", "weights"]),
    st.sampled_from([1, 5, 200]),
)
def test_the_size_of_the_input_does_not_matter(
    place: float, dtype: torch.dtype, mode: str, scale: str, gradient: str, samples: int
):
    """A net without biases and norms has the same terms and gradient, from one end of the range to the other."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False)).to(dtype)
    x = torch.randn(samples, 6, dtype=dtype)
    rr = classic(net, x, mode, scale=scale, gradient=gradient)
    smallest, largest = norms(net, x)
    lowest, highest = math.log10(1 / RANGE[dtype] / smallest), math.log10(RANGE[dtype] / largest)
    factor = 10 ** (lowest + place * (highest - lowest))
    (_, terms, grads), (_, expected, usual) = (step(rr, one) for one in (factor * x, x))
    torch.testing.assert_close(terms, expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(grads, usual, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("factor", [1e-8, 1e-6, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("name", NETS)
def test_small_values_count_behind_a_norm(name: str, factor: float):
    """So small that the norm's own eps is far above them: d is small, and no noise."""
    torch.manual_seed(0)
    net, shape = NETS[name](), (8, 8) if name == "layer" else (8, 3, 8, 8)
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.zeros_(module.bias)
    x = factor * torch.randn(shape)
    rr = classic(net, x, "layerwise")
    rr(x)
    d, terms = x, {}
    rebuilt = dict(zip(rr.terms, rr.reconstruct(x), strict=True))
    for key, module in net.named_children():
        if key in rebuilt and not (name == "layer" and key == "1"):
            terms[key] = squares(d - rebuilt[key].view_as(d)) / squares(d)
        d = module(d)
    for key, expected in terms.items():
        torch.testing.assert_close(rr.terms[key], expected.detach(), rtol=1e-3, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("channels", [1, 2, 16, 17])
def test_few_channels_compiled(channels: int):
    """Where the noise floor looked at all channels of a batch norm, Triton could not compile its kernel."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for before in (3, channels, channels):
        parts += [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))
    net, x = net.cuda().to(memory_format=torch.channels_last), torch.randn(512, 3, 32, 32, device="cuda")
    rr = Racecar(net, x, fraction=1 / 8)
    with torch.autocast("cuda", torch.bfloat16):
        _, loss = torch.compile(rr, fullgraph=True)(x.to(memory_format=torch.channels_last))
        _, eager = rr(x.to(memory_format=torch.channels_last))
    loss.backward()
    torch.testing.assert_close(loss, eager, rtol=0.02, atol=0)


# --- anchored in the input ----------------------------------------------------------------------------------------


def test_a_blank_input_anchors_nothing():
    rr = classic(nn.Linear(4, 3), torch.zeros(2, 4), scale="anchored")
    output, loss = rr(torch.zeros(2, 4))
    (output.sum() + loss).backward()
    assert loss == 0
    assert all(parameter.grad.isfinite().all() for parameter in rr.parameters())


def test_all_inputs_of_numbers_are_the_anchor():
    net = Net(lambda m, x, y, i: m.a(x) + m.b(y) * i, a=nn.Linear(4, 3), b=nn.Linear(5, 3)).double()
    x, y = torch.randn(2, 4).double(), 3 * torch.randn(2, 5).double()
    rr, plain = (classic(net, (x, y, torch.tensor(1)), scale=scale) for scale in ("anchored", "mean"))
    energy = (squares(x) + squares(y)) / (x.numel() + y.numel())
    close(rr(x, y, torch.tensor(1))[1], plain(x, y, torch.tensor(1))[1] / energy)


def test_indices_are_no_anchor():
    model, tokens = NETWORKS["text"]()
    with pytest.raises(ValueError, match="floating-point.*use scale='relative' or scale='mean'"):
        Racecar(model, tokens, scale="anchored")


# --- λ ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vgg", "resnet", "mlp", "attention", "text"])
def test_lambda_is_that_of_the_mean_over_layers(name: str):
    """Unless the sum is asked for."""
    model, inputs = NETWORKS[name]()
    model.eval()
    mean, total = (classic(model, inputs, weight=0.3, reduction=one) for one in ("mean", "sum"))
    losses = [call(rr, inputs)[1] for rr in (mean, total)]
    torch.testing.assert_close(losses[0], 0.3 * torch.stack(list(mean.terms.values())).mean())
    torch.testing.assert_close(losses[1], len(mean.terms) * losses[0])


def test_lambda_of_the_mean_with_layers_left_out():
    x = torch.randn(6, 4)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    rr = Racecar(net, x, weight={"*": 0.2, "0": 0.6, "4": 0}, scale="mean", gradient="both")
    _, loss = rr(x)
    close(loss.detach(), (0.6 * rr.terms["0"] + 0.2 * rr.terms["2"]) / 2, 1e-6)


def depth(layers: int) -> tuple[nn.Module, Tensor]:
    """Reused: every layer has the same term."""
    linear = nn.Linear(4, 4, bias=False).double()
    return nn.Sequential(*[linear] * layers), torch.randn(6, 4).double()


def test_lambda_means_the_same_for_3_and_for_100_layers():
    """Layers that are all alike, with orthogonal weights times a number: every layer-wise term is the same."""
    losses = []
    for layers in (3, 100):
        torch.manual_seed(0)
        net, x = depth(layers)
        nn.init.orthogonal_(net[0].weight)
        net[0].weight.data *= 0.99
        rr = Racecar(net, x, mode="layerwise", weight=0.1, scale="relative", gradient="both")
        losses.append(rr(x)[1].detach())
    close(losses[0], losses[1])
    close(losses[0], torch.tensor(0.1 * (1 - 0.99**2) ** 2).double())
