"""The reverse pass on a slice of the batch."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.by_hand import Net, batch_norm, close, lively, undo_linear
from tests.losses import classic
from tests.networks import NETWORKS
from tests.reverse.scale_cases import SCALES, chain, formula, pairs, rows

# --- how many samples ---------------------------------------------------------------------------------------------


COUNTS = [(8, 0.25, 2), (8, 1.0, 8), (6, 1 / 3, 2), (7, 0.5, 4), (10, 0.99, 10), (3, 0.01, 1), (1, 0.5, 1), (9, 0.4, 4)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size, fraction, samples", COUNTS)
def test_first_samples(size: int, fraction: float, samples: int, scale: str):
    """n = max(1, round(fraction · N)); "sum" × N/n; "relative" has the slice's own denominator."""
    net, x = chain(), rows(size)
    rr = classic(net, rows(5), scale=scale, fraction=fraction)
    output, loss = rr(x)
    assert torch.equal(output, net(x)), "the output is that of the whole batch"
    share = size / samples if scale == "sum" else 1
    expected = {name: share * formula(*pair, scale) for name, pair in pairs(net, x[:samples]).items()}
    close(rr.terms, {name: term.detach() for name, term in expected.items()})
    close(loss, sum(expected.values()))
    ours, theirs = (torch.autograd.grad(one, list(net.parameters())) for one in (loss, sum(expected.values())))
    close(ours, theirs)


@pytest.mark.parametrize("samples", [1, 2])
def test_batch_norm_sees_the_whole_batch_forward_and_the_slice_backward(samples: int):
    """In the reverse pass: statistics of the reverse data, and running ones where a channel has a single value."""
    torch.manual_seed(0)
    net = lively(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 5)))
    norm, x = net[1], rows(8)
    d2 = torch.tanh(batch_norm(norm, net[0](x)))
    seen = undo_linear(net[3], net[3](d2)[:samples])
    running = [one.clone() for one in (norm.running_mean, norm.running_var)]
    rr = classic(net, x, fraction=samples / 8, scale="mean")
    rr(x)
    if samples == 1:
        # the model's own pass may have moved them before the reverse pass
        candidates = [running, [norm.running_mean, norm.running_var]]
        backs = [F.batch_norm(seen, *one, norm.weight, norm.bias, False) for one in candidates]
    else:
        backs = [batch_norm(norm, seen)]
    found = [((d2[:samples] - torch.tanh(back)) ** 2).mean().detach() for back in backs]
    assert any(torch.allclose(rr.terms["3"], one, rtol=1e-9) for one in found), (rr.terms, found)


# --- where the batch is -------------------------------------------------------------------------------------------


def windows(m: Any, x: Tensor) -> Tensor:
    """(N, 8, 4) → (2 N, 4, 4) and back, as Swin does."""
    n = x.shape[0]
    x = torch.tanh(m.a(x.view(n, 2, 4, 4).reshape(n * 2, 4, 4)))
    return m.b(x.view(n, 2, 4, 6).reshape(n, 8, 6))


def steps_first(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x.transpose(0, 1)))).transpose(0, 1)


def rows_of_samples(m: Any, x: Tensor) -> Tensor:
    """(N, T, C) → (N·T, C): a sample's rows stand together."""
    return m.b(torch.tanh(m.a(x.reshape(-1, 4)))).view(*x.shape[:2], -1)


def rows_of_steps(m: Any, x: Tensor) -> Tensor:
    """(N, T, C) → (T·N, C): a sample's rows stand T apart."""
    return m.b(torch.tanh(m.a(x.transpose(0, 1).reshape(-1, 4))))


def means(m: Any, x: Tensor) -> Tensor:
    """(N, T, C) → (T, N, C) → (N, C)."""
    return m.b(torch.tanh(m.a(x.transpose(0, 1))).mean(0))


def class_token(m: Any, x: Tensor) -> Tensor:
    x = torch.cat([m.token.expand(x.shape[0], -1, -1), x], 1)
    return m.b(torch.tanh(m.a(x)) + m.place)


def channels_first(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x)).permute(2, 0, 1)).permute(1, 2, 0)


def noise(m: Any, x: Tensor) -> Tensor:
    """A constant with a value for every sample; here the same ones, so that slices can be compared."""
    per_sample = torch.ones(x.shape[0], 1, 1, dtype=x.dtype) * 1.5
    return m.b(torch.tanh(torch.mul(m.a(x), other=per_sample)))


def threshold(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.maximum(m.a(x), torch.zeros(x.shape[0], 8, 6, dtype=x.dtype)))


def noise_over_steps(m: Any, x: Tensor) -> Tensor:
    h = m.a(x.transpose(0, 1))
    return m.b(torch.tanh(h * torch.full((x.shape[0], 6), 1.5, dtype=x.dtype)))


FORMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    one.__name__: one
    for one in (
        *(windows, steps_first, rows_of_samples, rows_of_steps, means, class_token, channels_first),
        *(noise, threshold, noise_over_steps),
    )
}


def formed(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    net = Net(FORMS[name], a=nn.Linear(4, 6), b=nn.Linear(8 if name == "channels_first" else 6, 5))
    net.token, net.place = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(9, 6))
    return net.double(), torch.randn(6, 8, 4, dtype=torch.float64)


def torch_transformer() -> tuple[nn.Module, Tensor]:
    """torch's own layer wants (T, N, C)."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    net = Net(lambda m, x: m.out(m.layer(x.transpose(0, 1)).transpose(0, 1)), layer=layer, out=nn.Linear(4, 3))
    return net.double(), torch.randn(6, 8, 4, dtype=torch.float64)


def network(name: str) -> tuple[nn.Module, Tensor]:
    model, x = NETWORKS[name]()
    x = torch.cat([x, x.flip(0) * 0.7])[:6] if x.is_floating_point() else torch.cat([x, x.flip(1)])[:6]
    model = model.double().eval()  # without dropout
    return model, x.double() if x.is_floating_point() else x


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "chain": lambda: (chain(), rows()),
    **{name: lambda name=name: formed(name) for name in FORMS},
    "torch_transformer": torch_transformer,
    **{
        name: lambda name=name: network(name)
        for name in (
            *("vgg_plain", "mlp_mixer", "functional", "encoder", "attention", "scaled_dot_product", "gated_fused"),
            *("text", "language_model", "bare_weights", "tied_autoencoder", "unet", "densenet", "resnet_pad"),
        )
    },
}


@pytest.mark.parametrize("i, name", list(enumerate(MODELS)))
def test_disjoint_slices_have_the_whole_batch_as_their_mean(i: int, name: str):
    """For nets that treat every sample alone, exactly: 3 slices of 2 of 6. The slice is the batch of those samples.

    Planned with a single sample, and with several in one mode or the other.
    """
    check_slices(name, "auto", 1, ["mean"])
    check_slices(name, *[("auto", 6, SCALES[::2]), ("layerwise", 4, SCALES[1::2])][i % 2])


def check_slices(name: str, mode: str, planned: int, scales: list[str]) -> None:
    model, x = MODELS[name]()
    whole = classic(model, x, mode=mode)
    slices = classic(model, x[:planned], mode=mode, fraction=1 / 3)
    for scale in scales:
        whole.scale = slices.scale = scale
        losses = [slices(x.roll(-2 * i, 0))[1].detach() for i in range(3)]
        share = 3 if scale == "sum" else 1
        close(losses[1], share * whole(x[2:4])[1].detach())
        if scale not in ("relative", "ratio"):
            close(sum(losses) / 3, whole(x)[1].detach())


def test_where_the_batch_is_lost_the_whole_batch_is_seen_and_a_warning_says_so():
    """If the batch dimension is lost, the whole batch is used and a warning says so."""
    torch.manual_seed(0)
    net = Net(lambda m, x: m.b(torch.tanh(m.a(x)).reshape(-1)), a=nn.Linear(4, 6), b=nn.Linear(36, 5)).double()
    whole = classic(net, rows())
    _, expected = whole(rows())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, loss = classic(net, rows(), fraction=0.5)(rows())
    assert any("fraction" in str(one.message) for one in caught)
    close(loss, expected)


# --- what it costs ------------------------------------------------------------------------------------------------


class Forwards(TorchFunctionMode):
    """Counts convolutions and linear layers as models call them."""

    def __init__(self):
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (F.linear, F.conv2d, torch.conv2d):
            self.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["resnet", "mlp_mixer"])
def test_no_forward_of_its_own(name: str):
    model, x = NETWORKS[name]()
    rr = classic(model, x, fraction=0.25)
    hooked: dict[str, int] = {}
    for part, module in model.named_modules():
        module.register_forward_hook(lambda *_, part=part: hooked.__setitem__(part, hooked.get(part, 0) + 1))
    with Forwards() as ours:
        rr(x)
    reused = {part: 2 for part, module in model.named_modules() if part.endswith("relu") and "." in part}
    assert hooked == {part: reused.get(part, 1) for part in hooked}
    with Forwards() as plain:
        model(x)
    assert ours.calls == plain.calls


class Batches(TorchDispatchMode):
    """How many samples the transposed convolutions work on."""

    def __init__(self):
        super().__init__()
        self.sizes: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default and args[6]:
            self.sizes.add(args[0].shape[0])
        return func(*args, **(kwargs or {}))


def test_the_way_back_works_on_the_slice_alone():
    model, x = NETWORKS["vgg"]()
    rr = classic(model, x, fraction=0.5)
    with Batches() as batches:
        rr(x)
    assert batches.sizes == {2}


def test_it_draws_no_random_number_and_keeps_no_state():
    """The state afterwards is that of the model alone, with its dropout; two calls give the same."""
    model, x = NETWORKS["functional"]()
    rr = classic(model, x, fraction=0.5)
    torch.manual_seed(5)
    model(x)
    expected = torch.random.get_rng_state()
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        losses.append(rr(x)[1])
        assert torch.equal(torch.random.get_rng_state(), expected)
    assert torch.equal(*losses)
