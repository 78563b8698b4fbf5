"""Normalisations are re-applied with the statistics of the reverse data, and never change a running one."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from racecar.rules.norm import Normalised
from tests.losses import classic
from tests.rules.common import chain, close, drawn, forward, random, rebuild

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def standard(x, dims, eps=1e-5):
    """Mean 0 and variance 1 over `dims`."""
    mean = x.mean(dims, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(dims, keepdim=True) + eps).sqrt()


def affine(norm, x, dim=1):
    """The norm's scale and shift, along one dimension."""
    view = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    if getattr(norm, "weight", None) is not None:
        x = x * norm.weight.view(view)
    if getattr(norm, "bias", None) is not None:
        x = x + norm.bias.view(view)
    return x


@drawn
@given(
    size=st.lists(st.integers(1, 4), max_size=3),
    samples=st.integers(2, 4),
    channels=st.sampled_from([1, 2, 3, 100]),
    affine=st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
)
def test_batch_norm_for_a_compiler(size, samples, channels, affine):
    """The same values and gradients as torch.batch_norm."""
    x = random(samples, channels, *size).requires_grad_()
    weight, bias = (random(channels).requires_grad_() if one else None for one in affine)
    own = Normalised.apply(x, weight, bias, 1e-5)
    theirs = torch.batch_norm(x, weight, bias, None, None, True, 0.0, 1e-5, False)
    close(own, theirs)
    leaves = [one for one in (x, weight, bias) if one is not None]
    g = random(*x.shape)
    for pair in zip(*(torch.autograd.grad(one, leaves, g) for one in (own, theirs)), strict=True):
        close(*pair)


def shake(module):
    """Parameters and running statistics that are not those of a fresh model."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 1.5) if "weight" in name or "var" in name else nn.init.uniform_(tensor)
    return module.double()


def check(norm, again, dims, shake_norm=True):
    """Conv → norm → tanh → Conv (or Linear for dims 0) against the reverse pass written by hand."""
    torch.manual_seed(1)
    if shake_norm and isinstance(norm, nn.Module):
        shake(norm)
    if dims == 0:
        a, b, x = nn.Linear(5, 4).double(), nn.Linear(4, 3).double(), random(6, 5)
        transposed = torch.matmul
    else:
        a, b = CONV[dims](2, 4, 3).double(), CONV[dims](4, 3, 2).double()
        transposed, x = TRANSPOSED[dims], random(3, 2, *(5, 6, 4)[:dims])

    def undo(layer, y):
        bias = layer.bias.view(-1, *(1,) * dims)
        return transposed(y - bias, layer.weight)

    model = chain(a, norm, nn.Tanh(), b)
    d2, d3 = forward(model[:3], x), forward(model, x)
    with torch.no_grad():
        back2 = torch.tanh(again(norm, undo(b, d3)))
        layerwise, full = undo(a, d2), undo(a, back2)
    before = copy.deepcopy(model.state_dict())
    close(rebuild(model, x, "layerwise"), [layerwise, back2])
    close(rebuild(model, x, "full"), [full, back2])
    close(model.state_dict(), before)


def batch(norm, x):
    return affine(norm, standard(x, [0, *range(2, x.dim())], norm.eps))


def running(norm, x):
    view = (-1, *(1,) * (x.dim() - 2))
    return affine(norm, (x - norm.running_mean.view(view)) / (norm.running_var.view(view) + norm.eps).sqrt())


BATCH_NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
OPTIONS = [{}, {"affine": False}, {"eps": 0.1}, {"momentum": None}]


@pytest.mark.parametrize("dims", BATCH_NORMS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batch_norm(dims, options):
    norm = BATCH_NORMS[dims](4, **options)
    check(norm, batch, dims)
    check(norm.eval(), running, dims)


def test_planned_in_training_used_in_eval():
    """Which statistics are used is decided in every call."""
    torch.manual_seed(0)
    model, x = chain(nn.Linear(5, 4), shake(nn.BatchNorm1d(4)), nn.Linear(4, 3)), random(6, 5)
    rr = classic(model, x)
    model.eval()
    y = (model(x) - model[2].bias) @ model[2].weight
    close(rr.reconstruct(x)[1], running(model[1], y))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_without_running_statistics(training):
    check(nn.BatchNorm2d(4, track_running_stats=False).train(training), batch, 2)


@pytest.mark.parametrize("dims", [0, 2])
def test_sync_batch_norm(dims):
    norm = nn.SyncBatchNorm(4)
    check(norm, batch, dims)
    check(norm.eval(), running, dims)


def test_functional_batch_norm():
    mean, var, scale = random(4), random(4).square() + 0.1, random(4)
    reference = nn.BatchNorm2d(4, affine=False).double()
    reference.running_mean, reference.running_var = mean, var
    check(lambda x: F.batch_norm(x, mean, var), lambda _, x: running(reference, x), 2)
    check(lambda x: F.batch_norm(x, None, None, training=True), lambda _, x: batch(reference, x), 2)
    check(
        lambda x: torch.batch_norm(x, scale, None, mean.clone(), var.clone(), True, 0.1, 1e-5, False),
        lambda _, x: batch(reference, x) * scale.view(-1, 1, 1),
        2,
    )


OWN = {
    "LayerNorm": (nn.LayerNorm(4), lambda n, x: standard(x, -1) * n.weight + n.bias, 0),
    "LayerNorm, plain": (nn.LayerNorm(4, eps=0.1, elementwise_affine=False), lambda n, x: standard(x, -1, 0.1), 0),
    "LayerNorm of maps": (nn.LayerNorm([4, 3, 4]), lambda n, x: standard(x, (1, 2, 3)) * n.weight + n.bias, 2),
    "RMSNorm": (nn.RMSNorm(4, eps=0.1), lambda n, x: x * (x.square().mean(-1, True) + 0.1).rsqrt() * n.weight, 0),
    "RMSNorm, plain": (
        nn.RMSNorm(4, 0.1, elementwise_affine=False),
        lambda n, x: x * (x.square().mean(-1, True) + 0.1).rsqrt(),
        0,
    ),
    "GroupNorm": (
        nn.GroupNorm(2, 4),
        lambda n, x: affine(n, standard(x.unflatten(1, (2, 2)), (2, 3, 4)).flatten(1, 2)),
        2,
    ),
    "GroupNorm of rows": (
        nn.GroupNorm(2, 4, affine=False),
        lambda n, x: standard(x.unflatten(1, (2, 2)), 2).flatten(1),
        0,
    ),
    "InstanceNorm1d": (nn.InstanceNorm1d(4, affine=True), lambda n, x: affine(n, standard(x, 2)), 1),
    "InstanceNorm2d": (nn.InstanceNorm2d(4), lambda n, x: standard(x, (2, 3)), 2),
    "InstanceNorm3d": (nn.InstanceNorm3d(4, affine=True), lambda n, x: affine(n, standard(x, (2, 3, 4))), 3),
    "LocalResponseNorm": (
        nn.LocalResponseNorm(3, 0.5, 0.7, 1.5),
        lambda n, x: x / (1.5 + 0.5 / 3 * F.pad(x.square(), (0, 0, 0, 0, 1, 1)).unfold(1, 3, 1).sum(-1)) ** 0.7,
        2,
    ),
    "F.layer_norm": (lambda x: F.layer_norm(x, (4,)), lambda n, x: standard(x, -1), 0),
    "F.rms_norm": (
        lambda x: F.rms_norm(x, (4,), eps=0.1),
        lambda n, x: x * (x.square().mean(-1, True) + 0.1).rsqrt(),
        0,
    ),
    "F.group_norm": (lambda x: F.group_norm(x, 1), lambda n, x: standard(x, (1, 2, 3)), 2),
    "F.instance_norm": (lambda x: F.instance_norm(x), lambda n, x: standard(x, 2), 1),
    "F.normalize": (lambda x: F.normalize(x, dim=1), lambda n, x: x / x.norm(dim=1, keepdim=True), 0),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("training", [True, False])
def test_own_statistics(name, training):
    norm, again, dims = OWN[name]
    check(norm.train(training) if isinstance(norm, nn.Module) else norm, again, dims)


def test_instance_norm_with_running_statistics():
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    check(norm, lambda n, x: affine(n, standard(x, (2, 3))), 2)
    check(norm.eval(), running, 2)


def rms(x):
    """As T5 writes it."""
    variance = x.to(torch.float64).pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(variance + 0.1)


BY_HAND = {
    "rms": (rms, lambda x: F.rms_norm(x, (4,), eps=0.1)),
    "layer": (
        lambda x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5),
        lambda x: standard(x, -1),
    ),
    "layer, in steps": (
        lambda x: (u := x - x.mean(-1, True)) * torch.rsqrt((u * u).mean(-1, True) + 1e-5),
        lambda x: standard(x, -1),
    ),
    "l2": (lambda x: x / x.norm(dim=-1, keepdim=True), lambda x: F.normalize(x, dim=-1)),
    "range": (lambda x: x / x.abs().amax(-1, keepdim=True), lambda x: F.normalize(x, torch.inf, -1)),
    "softmax": (lambda x: x.exp() / x.exp().sum(-1, keepdim=True), lambda x: x.softmax(-1)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_written_by_hand(name):
    """Several calls that are together one norm are re-applied as one, also on maps with channels last."""
    norm, again = BY_HAND[name]
    check(norm, lambda _, x: again(x), 0)
    check(lambda x: norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
          lambda _, x: again(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), 2)  # fmt: skip


def test_norm_of_t5():
    """Its scale is a parameter that multiplies: it goes back transposed, then the norm is re-applied."""
    torch.manual_seed(0)

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4))

        def forward(self, x):
            return self.weight * rms(x)

    norm, a, b, x = Norm(), nn.Linear(5, 4), nn.Linear(4, 3), random(6, 5)
    model = chain(a, norm, b)
    back = norm.weight * ((forward(model, x) - b.bias) @ b.weight)
    close(rebuild(model, x)[1], F.rms_norm(back, (4,), eps=0.1))
    close(rebuild(model, x)[0], (rms(a(x)) - a.bias) @ a.weight)
    assert [entry.name for entry in classic(model, x).plan] == ["0", "2"]


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("mode", ["auto", "layerwise", "full", "input"])
def test_statistics_change_once_per_step(mode, fraction):
    """The forward pass changes them, exactly as without us; planning and rebuilding never do."""
    torch.manual_seed(0)
    model = chain(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3),
        nn.InstanceNorm2d(4, track_running_stats=True), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4),
        nn.SyncBatchNorm(4, momentum=None), nn.Linear(4, 2),
    )  # fmt: skip
    plain, x = copy.deepcopy(model), random(4, 2, 6, 6)
    rr = classic(model, x, mode=mode, fraction=fraction)
    for _ in range(3):
        rr(x)
        plain(x)
        rr.reconstruct(x)
        assert all(map(torch.equal, model.buffers(), plain.buffers()))
    assert model[1].num_batches_tracked == 3


class Residual(nn.Module):
    """x + f(x) without any weight: one function of x, which contains a norm."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return x + self.f(x)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4)])
def test_statistics_inside_a_function_written_by_hand(norm):
    """Replaying x + bn(x) uses the statistics of the reverse data and changes none."""
    model, x = chain(nn.Linear(5, 4), Residual(norm), nn.Linear(4, 3)), random(6, 5)
    plain = copy.deepcopy(model)
    rr = classic(model, x)
    rr(x)
    plain(x)
    rr.reconstruct(x)
    close(dict(model.named_buffers()), dict(plain.named_buffers()))
    if any(entry.name == "2" and "join" not in entry.reason for entry in rr.plan):
        y = (forward(model, x) - model[2].bias) @ model[2].weight
        close(rr.reconstruct(x)[1], y + batch(norm, y))


@pytest.mark.parametrize("kind", ["batch of one", "fraction"])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.BatchNorm2d(4, affine=False)])
def test_single_value_per_channel(norm, kind):
    """After a global mean one sample has one value per channel in the reverse pass: the running statistics serve."""
    torch.manual_seed(0)
    shake(norm)
    a, b = nn.Conv2d(2, 4, 3), nn.Linear(4, 3)
    model = chain(a, norm, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), b)
    x = random(1 if kind == "batch of one" else 4, 2, 5, 5)
    rr = classic(model, x, mode="layerwise", scale="sum", fraction=1 / len(x))
    d2 = forward(model[:3], x)[:1]
    output, _ = rr(x)
    back = torch.tanh(running(norm, ((output[:1] - b.bias) @ b.weight).view(1, 4, 1, 1))).expand(1, 4, 3, 3)
    close(rr.terms["5"], (d2 - back).square().sum() * len(x))


def test_single_value_without_running_statistics_is_the_shift():
    torch.manual_seed(0)
    norm = shake(nn.BatchNorm2d(4, track_running_stats=False))
    model = chain(nn.Conv2d(2, 4, 3), norm, lambda x: x.mean((2, 3)), nn.Linear(4, 3))
    close(rebuild(model, random(1, 2, 5, 5))[1], norm.bias.view(1, 4, 1, 1).expand(1, 4, 3, 3))
