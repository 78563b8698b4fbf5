"""The orthogonality regularisers are what their papers print: against dense matrices, loops and singular values."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from racecar.orthogonality import BANSAL, BANSAL_CODE, Schedule, dso, mc, ocnn, so, spectral, srip
from tests.pairwise import pairwise
from tests.run.test_no_sync import witness

drawn = settings(suppress_health_check=list(HealthCheck))
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
ALL = [so, dso, mc, srip, ocnn]
SIDES = ["smaller", "columns", "rows"]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(actual, expected, tolerance=1e-9):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def net():
    """Every kind of layer, some of one shape."""
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, stride=2),
        nn.Sequential(
            nn.Conv2d(4, 6, (2, 3), padding=1, groups=2), nn.BatchNorm2d(6), nn.Conv2d(4, 6, (2, 3), groups=2)
        ),
        nn.Conv3d(2, 5, 2, dilation=2),
        nn.ConvTranspose1d(4, 2, 3),
        nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2),
        nn.ConvTranspose3d(1, 3, 2),
        nn.Linear(5, 3),
        nn.Linear(3, 7),
    ).double()


def weights(model):
    return [m.weight for m in model.modules() if not isinstance(m, nn.Sequential | nn.BatchNorm2d)]


def gram_error(weight, side):
    """The residual of one weight, entry by entry in NumPy."""
    w = weight.detach().numpy().reshape(len(weight), -1)
    if side == "columns" or (side == "smaller" and w.shape[0] > w.shape[1]):
        w = w.T
    return np.array([[sum(a * b) - (i == j) for j, b in enumerate(w)] for i, a in enumerate(w)])


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


# SRIP


@pytest.mark.parametrize("side, squared, formed", pairwise(SIDES, [False, True], [256, 0]))
def test_srip_becomes_the_largest_singular_value(monkeypatch, side, squared, formed):
    """Value and gradient, with and without a formed Gram matrix."""
    monkeypatch.setattr(spectral, "FORMED", formed)
    drawn = [random(4, 6), random(7, 3), random(4, 2, 3), random(7, 3)]
    drawn = [(w / 2).requires_grad_() for w in drawn]
    tall = [w.flatten(1) if side == "rows" or (side == "smaller" and len(w) < 6) else w.flatten(1).mT for w in drawn]
    sigmas = [torch.linalg.svdvals(w @ w.mT - torch.eye(len(w)))[0] for w in tall]
    truth = sum(sigma**2 if squared else sigma for sigma in sigmas)
    value = srip(drawn, power=1000, squared=squared, side=side)
    close(value, truth.detach(), 1e-8)
    for ours, theirs in zip(torch.autograd.grad(value, drawn), torch.autograd.grad(truth, drawn), strict=True):
        close(ours, theirs, 1e-6)


def by_loop(weight, start, power):
    e, v = gram_error(weight, "smaller"), start.numpy().ravel()
    for _ in range(power):
        v = e @ (v / np.linalg.norm(v))
    return np.linalg.norm(v)


def recorder():
    """A ``draw`` that keeps what it has drawn: one tensor for each power iteration that is run."""
    starts = []
    return starts, lambda *shape, **like: starts.append(torch.randn(*shape, **like)) or starts[-1]


@pytest.mark.parametrize("power", [1, 2, 5])
@pytest.mark.parametrize("formed", [256, 0])
def test_stacked_layers_are_iterated_as_if_alone(monkeypatch, power, formed):
    monkeypatch.setattr(spectral, "FORMED", formed)
    drawn = [random(4, 6), random(4, 2, 3), random(4, 7), random(9, 4)]
    starts, draw = recorder()
    value = srip(drawn, power=power, draw=draw)
    assert len(starts) == (1 if formed else 3)
    close(value, sum(by_loop(w, start, power) for w, start in zip(drawn, torch.cat(starts), strict=True)))


def test_a_deep_network_takes_few_iterations():
    """The shapes of ResNet110: 110 layers, four sizes of Gram matrix."""
    convs = [(16, 3), *[(16, 16)] * 36, (32, 16), *[(32, 32)] * 35, (64, 32), *[(64, 64)] * 35]
    starts, draw = recorder()
    srip([torch.randn(out, into, 3, 3) for out, into in convs] + [torch.randn(10, 64)], draw=draw)
    assert sorted(len(start) for start in starts) == [1, 36, 36, 37]


def test_srip_starts_anew_in_every_call_or_from_a_generator():
    w = random(5, 5)
    assert srip(w) != srip(w)
    assert srip(w, generator=torch.Generator().manual_seed(3)) == srip(w, generator=torch.Generator().manual_seed(3))
    assert max(srip(w) for _ in range(20)) <= torch.linalg.matrix_norm(w @ w.T - torch.eye(5), 2) + 1e-9


# OCNN


def operator(f, channels, size):
    """The dense matrix of a linear function of an image: (outputs, inputs), each channels × places."""
    basis = torch.eye(channels * math.prod(size), dtype=torch.float64)
    with torch.no_grad():
        return f(basis.unflatten(1, (channels, *size))).flatten(1).T


def middle(matrix, channels, place):
    """‖rows of MMᵀ − I that belong to one place‖², M with rows channels × places."""
    gram = (matrix @ matrix.T - torch.eye(len(matrix))).unflatten(0, (channels, -1))
    return gram[:, place].square().sum()


@st.composite
def geometries(draw):
    """(in, out, groups, kernel, stride, dilation, padding)"""
    dims, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel, stride, dilation = {1: (6, 4, 4), 2: (4, 3, 2), 3: (3, 2, 1)}[dims]
    ranges = (1, kernel), (1, stride), (1, dilation), (0, 2)
    each = [[draw(st.integers(*one)) for _ in range(dims)] for one in ranges]
    return groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), groups, *map(tuple, each)


def reach(kernel, stride, dilation):
    """How many places to each side filters still overlap."""
    return [d * (k - 1) // s for k, s, d in zip(kernel, stride, dilation, strict=True)]


def centre(places):
    return int(np.ravel_multi_index([n // 2 for n in places], places))


@drawn
@given(geometries())
def test_ocnn_is_the_middle_of_the_dense_operator(geometry):
    into, out, groups, kernel, stride, dilation, padding = geometry
    torch.manual_seed(2)
    conv = CONV[len(kernel)](into, out, kernel, stride, padding, dilation, groups, bias=False).double()
    far, border = reach(kernel, stride, dilation), [-(-p // s) for p, s in zip(padding, stride, strict=True)]
    places = [2 * (f + b) + 1 for f, b in zip(far, border, strict=True)]  # the middle one is free of the padding
    size = [
        (n - 1) * s + d * (k - 1) + 1 - 2 * p
        for n, s, d, k, p in zip(places, stride, dilation, kernel, padding, strict=True)
    ]
    truth = middle(operator(conv, into, size), out, centre(places))
    close(ocnn(conv, side="rows"), truth)
    close(ocnn(conv.weight, side="rows", stride=stride, dilation=dilation, groups=groups), truth)


@drawn
@given(geometries())
def test_ocnn_of_a_transposed_convolution(geometry):
    """Its columns are the rows of the convolution whose adjoint it is."""
    into, out, groups, kernel, stride, dilation, _ = geometry
    torch.manual_seed(2)
    conv = TRANSPOSED[len(kernel)](into, out, kernel, stride, groups=groups, dilation=dilation, bias=False).double()
    places = [2 * f + 1 for f in reach(kernel, stride, dilation)]
    close(ocnn(conv, side="rows"), middle(operator(conv, into, places).T, into, centre(places)))


@drawn
@given(geometries())
def test_ocnn_is_the_printed_self_convolution(geometry):
    """And its sides differ by a constant: with stride 1 "columns" is the paper's formula for columns."""
    into, out, _, kernel, stride, _, _ = geometry
    torch.manual_seed(2)
    k, conv = random(out, into, *kernel), (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]

    def printed(k, stride):
        padding = [(n - 1) // s * s for n, s in zip(kernel, stride, strict=True)]
        z = conv(k, k, stride=stride, padding=padding)
        z[range(len(k)), range(len(k)), *(n // 2 for n in z.shape[2:])] -= 1
        return z.square().sum()

    once = (1,) * len(kernel)
    rows, columns = printed(k, stride), into * math.prod(map(min, kernel, stride))
    close(ocnn(k, stride=stride, side="rows"), rows)
    close(ocnn(k, stride=stride, side="columns"), rows + columns - out)
    close(ocnn(k, stride=stride), rows - max(0, out - columns))
    close(ocnn(k, side="columns"), printed(k.transpose(0, 1), once))


# Zero


def orthonormal(*shape):
    """A weight whose rows, or columns if it is tall, are orthonormal."""
    return nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64))


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


def at_one_tap(out, into, *kernel):
    """An orthogonal matrix at one place of a kernel, zero elsewhere."""
    k = torch.zeros(out, into, *kernel, dtype=torch.float64)
    k[:, :, *(n // 2 for n in kernel)] = orthonormal(out, into)
    return k


def daubechies():
    """The four-tap wavelet and its scaling function: overlapping, and orthogonal when moved by two."""
    h = torch.tensor([1 + 3**0.5, 3 + 3**0.5, 3 - 3**0.5, 1 - 3**0.5], dtype=torch.float64) / 32**0.5
    return torch.stack([h, h.flip(0) * torch.tensor([1, -1, 1, -1])]).unsqueeze(1)


def squares(f):
    h = f()[:, 0]
    return torch.einsum("ax,by->abxy", h, h).reshape(4, 1, 4, 4)


ORTHOGONAL = {
    "linear, tall": (lambda: orthonormal(6, 2), {}),
    "square": (lambda: at_one_tap(4, 4, 3, 3), {}),
    "wide": (lambda: at_one_tap(3, 5, 2), {}),
    "tall": (lambda: at_one_tap(5, 3, 3, 2, 3), {}),
    "patches": (lambda: orthonormal(6, 2, 2, 2), {"stride": 2}),
    "tall patches": (lambda: orthonormal(9, 2, 2, 2), {"stride": (2, 2)}),
    "gaps": (lambda: orthonormal(3, 2, 1, 1), {"stride": 2}),
    "wavelet": (daubechies, {"stride": 2}),
    "wavelet, dilated": (daubechies, {"stride": 4, "dilation": 2}),
    "wavelet of pictures": (lambda: squares(daubechies), {"stride": 2}),
    "groups": (lambda: torch.cat([at_one_tap(2, 3, 3), at_one_tap(2, 3, 3)]), {"groups": 2}),
    "depthwise, tall": (lambda: torch.cat([at_one_tap(2, 1, 3, 3) for _ in range(4)]), {"groups": 4}),
}


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_zero_for_orthogonal_convolutions(name):
    make, how = ORTHOGONAL[name]
    k = make()
    assert 0 <= ocnn(k, **how) < 1e-12
    assert ocnn(1.01 * k, **how) > 1e-4
    assert ocnn(k + 0.01 * random(*k.shape), **how) > 1e-5


def test_an_orthogonal_kernel_is_no_orthogonal_convolution():
    k = orthonormal(4, 4, 3, 3)
    assert so(k) < 1e-12
    assert ocnn(k) > 0.1


@pytest.mark.parametrize("f", ALL)
def test_the_gradient_is_zero_at_zero(f):
    k = torch.eye(3).unsqueeze(-1).requires_grad_()
    value = f(k)
    value.backward()
    assert value == 0
    assert torch.equal(k.grad, torch.zeros_like(k))


# Gradients


@pytest.mark.parametrize("f, side", [(f, side) for f in (so, mc, srip, ocnn) for side in SIDES] + [(dso, None)])
@pytest.mark.parametrize("shape", [(3, 4), (5, 2), (2, 2, 3), (5, 2, 2, 3)])
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


# Models


@pytest.mark.parametrize("f", [so, dso, mc, srip])
def test_a_model_is_its_weights(f):
    model = net()
    w = weights(model)
    forms = model, w, iter(w), {str(i): one for i, one in enumerate(w)}
    values = []
    for form in forms:
        torch.manual_seed(8)
        values.append(f(form))
    assert all(torch.equal(value, values[0]) for value in values)
    if f is not srip:  # its random starts are drawn in another order
        close(values[0], sum(f(one).detach() for one in w))
    values[0].backward()
    assert all(one.grad.abs().max() > 0 for one in w)


def test_ocnn_of_a_model_is_that_of_its_layers():
    model = net()
    parts = [m for m in model.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
    assert len(parts) == len(weights(model)) == 9
    close(ocnn(model), sum(ocnn(part).detach() for part in parts))


@pytest.mark.parametrize("f", [so, ocnn])
def test_shared_weights_count_once(f):
    """Within a module, between modules, and between a convolution and its transposed twin."""
    a, b = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 3)
    b.weight = a.weight
    c, d = nn.Linear(4, 4), nn.Linear(4, 4)
    d.weight = c.weight
    assert f(nn.Sequential(a, b, c, c, d)) == f(nn.Sequential(a, c)) == f(nn.Sequential(b, d))
    assert so([a.weight, a.weight]) == so(a)


def test_layers_are_picked_by_name():
    model = net()
    w = dict(zip(["0", "1.0", "1.2", *"234567"], weights(model), strict=True))
    assert so(model, layers="1.*") == so([w["1.0"], w["1.2"]])
    assert so(model, layers=["[67]", "0"]) == so([w["0"], w["6"], w["7"]])
    assert so(w, layers=("1.?",)) == so([w["1.0"], w["1.2"]])
    assert ocnn(model, layers="0") == ocnn(w["0"], stride=2)
    with pytest.raises(ValueError, match="layers pattern '8' matches no layer; the layers are: '0', '1.0', "):
        so(model, layers=["0", "8"])


@pytest.mark.parametrize("f", ALL)
def test_parametrised_weights(f):
    class Double(nn.Module):
        def forward(self, w):
            return 2 * w

    layer = nn.Conv2d(2, 2, 2).double()
    parametrize.register_parametrization(layer, "weight", Double())
    normed = parametrizations.weight_norm(nn.Linear(3, 3).double())
    torch.manual_seed(5)
    value = f(nn.Sequential(layer, normed))
    torch.manual_seed(5)
    close(value, f([2 * layer.parametrizations.weight.original, normed.weight]).detach())
    value.backward()
    assert layer.parametrizations.weight.original.grad.abs().sum() > 0
    assert normed.parametrizations.weight.original0.grad.abs().sum() > 0


BAD = [
    (lambda: so(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3))), ValueError, "no layer found"),
    (lambda: so([]), ValueError, "no layer found"),
    (lambda: so(net(), layers=[]), ValueError, "no layer found"),
    (lambda: so(3), TypeError, "a model, a weight or several weights are needed, not int"),
    (lambda: so([nn.Linear(2, 2)]), TypeError, "weight '0' must be a tensor, not Linear"),
    (lambda: so({"a": torch.ones(2, 2), "bias": torch.ones(2)}), ValueError, "weight 'bias' has shape \\(2,\\)"),
    (lambda: so(torch.ones(0, 2)), ValueError, "has shape \\(0, 2\\)"),
    (lambda: so(torch.ones(2, 2, dtype=torch.complex64)), TypeError, "must be real"),
    (lambda: so(nn.LazyLinear(3)), ValueError, "has no shape yet"),
    (lambda: so(torch.eye(2), layers="a"), ValueError, "layers picks by name"),
    (lambda: so(torch.eye(2), side="left"), ValueError, "side must be one of 'smaller', 'columns', 'rows', not 'left'"),
    (lambda: srip(torch.eye(2), power=0), ValueError, "power must be a whole number of at least 1, not 0"),
    (lambda: srip(torch.eye(2), power=1.5), ValueError, "power must be"),
    (lambda: srip(torch.eye(2), generator=torch.Generator(), draw=torch.randn), ValueError, "give one of them"),
    (lambda: ocnn(nn.Conv1d(1, 1, 1), stride=2), ValueError, "for bare weights"),
    (lambda: ocnn(torch.ones(4, 2, 3), groups=3), ValueError, "4 filters cannot be in 3 groups"),
    (lambda: ocnn(torch.ones(4, 2, 3), stride=(1, 2)), ValueError, "stride must be 1 whole numbers"),
    (lambda: ocnn(torch.ones(4, 2, 3), dilation=0), ValueError, "dilation must be"),
    (lambda: Schedule(((1, 0.1),)), ValueError, "start at 0 and grow"),
    (lambda: Schedule(((0, 0.1), (5, 0.2), (5, 0.3))), ValueError, "start at 0 and grow"),
    (lambda: Schedule(()), ValueError, "start at 0 and grow"),
    (lambda: BANSAL.at(-1), ValueError, "no epoch -1"),
]


@pytest.mark.parametrize("call, error, message", BAD)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# Where it runs


@pytest.mark.parametrize("f", ALL)
def test_low_precision_and_autocast_compute_in_float32(f):
    w = [torch.randn(20, 30), torch.randn(20, 2, 3)]
    f = partial(f, generator=torch.Generator().manual_seed(6)) if f is srip else f
    exact = f(w)
    if isinstance(f, partial):
        f.keywords["generator"].manual_seed(6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert f(w) == exact
    assert f([one.bfloat16() for one in w]).dtype == exact.dtype == torch.float32
    assert f([w[0].double(), w[1]]).dtype == torch.float64


@pytest.mark.parametrize("f", ALL)
def test_compiles_whole(f):
    model = net().float()
    steps = []
    for compiled in (False, True):
        torch._dynamo.reset()
        run = partial(f, model, layers=["[01]*", "6"])
        run = torch.compile(run, backend="eager", fullgraph=True) if compiled else run
        torch.manual_seed(7)
        value = run()
        steps.append([value.detach(), *torch.autograd.grad(value, [model[0].weight, model[1][2].weight])])
    torch._dynamo.reset()
    for ours, theirs in zip(*steps, strict=True):
        close(ours, theirs, 1e-6)


@pytest.mark.parametrize("f", ALL)
def test_many_networks_at_once(f):
    """torch.func: gradients of stacked weights are those of each."""
    drawn = {"a": random(3, 4, 5), "b": random(3, 4, 2, 2), "c": random(3, 4, 5)}
    if f is srip:
        f = partial(srip, power=200)
    together = torch.func.vmap(torch.func.grad(f), randomness="different")(drawn)
    for i in range(3):
        alone = torch.func.grad(f)({name: w[i] for name, w in drawn.items()})
        for name in drawn:
            close(together[name][i], alone[name], 1e-6)


@pytest.mark.parametrize("f", ALL)
def test_never_waits_for_the_device(f):
    model = net().float()
    assert witness(lambda: f(model).backward()) == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("f", ALL)
def test_on_the_device(f):
    model = net().float()
    f = partial(srip, power=500) if f is srip else f
    expected = f(model)
    model.cuda()
    for wait in ("default", "error"):
        torch.cuda.set_sync_debug_mode(wait)
        try:
            value = f(model)
            value.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    close(value.cpu(), expected.detach(), 1e-4)


# The schedule


def test_schedules():
    at = {0: 1e-2, 19: 1e-2, 20: 1e-3, 49: 1e-3, 50: 1e-4, 69: 1e-4, 70: 1e-6, 119: 1e-6, 120: 0.0, 500: 0.0}
    assert {epoch: BANSAL.at(epoch) for epoch in at} == at
    assert [BANSAL_CODE.at(epoch) for epoch in (0, 20, 50, 70, 120)] == [1e-2, 1e-5, 1e-6, 1e-8, 0.0]
    assert Schedule(((0, 0.5),)).at(7) == 0.5
