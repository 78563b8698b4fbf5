"""Normalisations are re-applied as they are written out by hand, and never change a running statistic."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from racecar.rules.norm import Normalised
from tests.losses import classic
from tests.rules.common import chain, close, drawn, forward, random, rebuild, rebuild_in
from tests.rules.norm_cases import affine, batch, running, shake, standard

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


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
    for found, first in zip(rebuild_in(model, x, "layerwise", "full"), (layerwise, full), strict=True):
        close(found, [first, back2])
    close(model.state_dict(), before)


BATCH_NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
OPTIONS = [{}, {"affine": False}, {"eps": 0.1}, {"momentum": None}]


@pytest.mark.parametrize("dims", BATCH_NORMS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batch_norm(dims, options):
    norm = BATCH_NORMS[dims](4, **options)
    check(norm, batch, dims)
    check(norm.eval(), running, dims)


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
