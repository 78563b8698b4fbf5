"""torch.compile(fullgraph=True) sees one ordinary module: values, gradients and buffers as in eager mode."""

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from tests.by_hand import Net
from tests.losses import classic
from tests.networks import NETWORKS, images, rows, seeded, sequence
from tests.networks.forms import Output
from tests.steps import assert_same, step


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(rr, backend="eager"):
    """``eager``: what dynamo sees, and when it compiles anew; ``aot_eager``: also what autograd's compiler makes of it,
    which takes half as long again."""
    return torch.compile(rr, backend=backend, fullgraph=True)


def padded():
    """Reflected and wrapped around, with Hardswish after the one and an activation in place after the other. Two
    weights are worked out in every call, one of them from a buffer that changes."""
    first = weight_norm(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"))
    second = nn.Conv2d(4, 5, 2, stride=2, padding=1, padding_mode="circular")
    last = spectral_norm(nn.Linear(125, 3))
    return nn.Sequential(first, nn.Hardswish(), second, nn.ReLU6(inplace=True), nn.Flatten(), last)


def written_out(m, x):
    """An activation and a norm made of several calls; gate and value out of one layer, and a shortcut; then .mT."""
    h = m.a(x)
    h = h * torch.sigmoid(h)
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
    gate, up = m.gate_up(m.norm(h)).chunk(2, -1)
    return m.b((h + F.silu(gate) * up).mT)


def written_out_net():
    parts = {"a": nn.Linear(6, 8), "norm": nn.RMSNorm(8), "gate_up": nn.Linear(8, 16, bias=False), "b": nn.Linear(5, 4)}
    return Net(written_out, **parts), sequence(6)


def many_activations():
    """Three after each layer."""
    kinds = (nn.Hardtanh, nn.PReLU, nn.Softplus, nn.Tanhshrink, nn.ELU, nn.Softsign, nn.Mish, nn.Hardsigmoid, nn.SiLU)
    parts = [kind() for kind in kinds]
    return nn.Sequential(*(part for i in (0, 3, 6) for part in (nn.Linear(6, 6), *parts[i : i + 3])))


def residual(m, x):
    """Batch norms, activations in place, pooling, and a shortcut that is thinned out and padded; then functions alone:
    two ways that are joined, dropout, and a mean beside what is flattened."""
    h = torch.relu_(m.norm(m.a(x)))
    h = torch.relu_(m.norm2(m.b(h)) + F.pad(h[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1)))
    h = F.max_pool2d(h, 2)
    h = F.leaky_relu(m.c(torch.cat([h, h + torch.tanh(m.d(h))], 1)), 0.1)
    k = F.dropout(m.e(h.flatten(1)).sigmoid(), 0.2, m.training)
    return m.f(torch.cat((k, h.mean((2, 3))), dim=1))


def residual_net():
    convs = {"a": nn.Conv2d(3, 4, 3, padding=1), "b": nn.Conv2d(4, 6, 3, stride=2, padding=1)}
    convs |= {"d": nn.Conv2d(6, 6, 3, padding=1), "c": nn.Conv2d(12, 5, 3, padding=1)}
    norms = {"norm": nn.BatchNorm2d(4), "norm2": nn.BatchNorm2d(6)}
    return Net(residual, **convs, **norms, e=nn.Linear(20, 6), f=nn.Linear(11, 5)), images(size=8)


def shared(m, *, x, mask=None, scale=1.0):
    """Arguments by keyword, one of them no tensor; a tied weight; a layer called twice; and a dataclass is returned."""
    h = torch.tanh(m.tied(torch.tanh(m.first(x)) * scale * mask))
    for _ in range(2):
        h = torch.tanh(m.again(h))
    return Output(m.last(h), h)


def shared_net():
    net = Net(shared, first=nn.Linear(6, 8), tied=nn.Linear(8, 8), again=nn.Linear(8, 8), last=nn.Linear(8, 3))
    net.again.weight = net.tied.weight
    return net, {"x": rows(), "mask": (rows(8) > 0).float(), "scale": 0.5}


# Dynamo shows hardswish, .mT and F.pad to no torch function mode: beside each other (padded), and alone (.mT in
# written_out, hardswish in the schedules below).
OURS = {
    "padded": lambda: (padded(), images(size=8)),
    "written_out": written_out_net,
    "residual": residual_net,
    "many_activations": lambda: (many_activations(), rows()),
    "shared": shared_net,
}
THEIRS = ["text", "checkpointed"]  # scaled_dot_product: plan/test_replanning.py
SOAK = ("padded", "written_out", "many_activations", "shared", "text", "checkpointed")
"""For ``make soak``: their parts are compiled in other tests, too."""
SLICED = ("residual", "text", "padded", "written_out")
SEEN = ("written_out", "many_activations", "shared", "text")
"""For what dynamo sees of them: they change nothing in place, and go without autograd's compiler."""
CASES = {name: seeded(build) for name, build in OURS.items()} | {name: NETWORKS[name] for name in THEIRS}


@pytest.fixture
def logged():
    """What is said in any log, from a warning on."""
    found, handler = [], logging.Handler(logging.WARNING)
    handler.emit = found.append
    known = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    ends = [logging.getLogger(), *(one for one in known if not one.propagate)]
    for one in ends:
        one.addHandler(handler)
    yield found
    for one in ends:
        one.removeHandler(handler)


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.soak] * (one in SOAK)) for one in CASES])
def test_a_compiled_step_is_the_eager_step(name, logged):
    """And nothing is logged: torch would warn of in-place changes in recomputed parts."""
    check_two_steps(CASES[name], 0.5 if name in SLICED else 1.0, "eager" if name in SEEN else "aot_eager")
    assert not logged


def check_two_steps(build, fraction, backend):
    """A second batch must use the same graph, so that no value of the first batch is a constant in it."""
    model, inputs = build()
    eager, rr = (classic(one, inputs, fraction=fraction) for one in (copy.deepcopy(model), model))
    fast = compiled(rr, backend)
    for recompile, data in ((False, inputs), (True, build(seed=1)[1])):
        with torch._dynamo.config.patch(error_on_recompile=recompile):
            made = step(rr, data, fast)
        assert_same(made, step(eager, data), rtol=1e-4, atol=1e-5)


@pytest.mark.soak
def test_modes_and_scales():
    """A deep copy, as for EMA or a sweep, follows changed settings and has terms."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), rows()
    rr = copy.deepcopy(classic(model, x, fraction=0.5, input_activation="tanh"))
    fast = compiled(rr)
    for mode, scale in (("full", "anchored"), ("input", "relative"), ("layerwise", "sum")):
        rr.mode, rr.scale = mode, scale
        other = classic(model, x, mode=mode, scale=scale, fraction=0.5, input_activation="tanh")
        assert_same(step(rr, x, fast), step(other, x))
    assert list(rr.terms) == [entry.name for entry in rr.plan] == ["0", "2"]
    assert not any(term.requires_grad for term in rr.terms.values())


SCHEDULES = {
    "number, and back from zero": [*(0.1 * i for i in range(1, 12)), 0, 2, 0],
    "dict": [{"*": 1.0 + i, "0": 0.1 * i} for i in range(1, 12)],
    "which layers": [{"*": 1}, {"0": 1, "2": 0}, {"2": 2}],
    "tensor": [{"*": 1, "0": torch.eye(6)[i]} for i in range(3)],
    "one tensor for all": [torch.tensor(1.0), torch.tensor(0.5), torch.tensor(0.0)],
}


@pytest.mark.soak
def test_a_schedule_of_the_weight():
    """The weight may change in every step, more often than dynamo compiles anew, and so may its type."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Hardswish(), nn.Linear(8, 3)), rows()
    rr = classic(model, x)
    fast = compiled(rr)
    for name, weights in SCHEDULES.items():
        seen = []
        for weight in weights:
            rr.weight = weight
            made = step(rr, x, fast)
            assert_same(made, step(rr, x))
            seen.append(made.values["loss"].item())
        assert len(set(seen)) > 1, name


def normed():
    """Both norms. d of the last layer is kept whole by its product; its slice, once a tensor beside it, was written
    over by inductor (2.13)."""
    parts = nn.Linear(12, 12), nn.BatchNorm1d(5), nn.Tanh(), nn.LayerNorm(12), nn.Linear(12, 36)
    return nn.Sequential(*parts), torch.randn(8, 5, 12)


def encoder_layer():
    return nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), sequence(8)


@pytest.fixture
def plain_kernels():
    """Compile inductor's kernels without optimisation, because they run only four times."""
    fast = {"cpp.vec_isa_ok": False, "aot_inductor.debug_compile": True, "aot_inductor.debug_symbols": False}
    with torch._inductor.config.patch(fast):
        yield


@pytest.mark.soak
@pytest.mark.parametrize("build, fraction, backend", [(normed, 0.25, "inductor"), (encoder_layer, 0.5, "eager")])
def test_training_and_evaluation_take_turns(build, fraction, backend, plain_kernels):
    model, x = seeded(build)()
    eager, rr = (classic(one, x, fraction=fraction) for one in (copy.deepcopy(model), model))
    fast = compiled(rr, backend)
    for known in (False, True):
        x = seeded(build)(seed=int(known))[1]
        with torch._dynamo.config.patch(error_on_recompile=known):
            rr.train(), eager.train()
            assert_same(step(rr, x, fast), step(eager, x), rtol=1e-5, atol=1e-5)
            rr.eval(), eager.eval()
            with torch.no_grad():
                torch.testing.assert_close(fast(x), eager(x), rtol=1e-5, atol=1e-5)


@pytest.mark.soak
def test_batches_of_other_sizes():
    """The last batch of an epoch is smaller; dynamo then makes the size a symbol. (The whole batch: with lengths.)"""
    model, x = NETWORKS["bare_weights"]()
    rr = classic(model, x, scale="sum", fraction=0.5)
    fast = compiled(rr)
    for size in (4, 7, 5):
        data = torch.rand(size, *x.shape[1:])
        assert_same(step(rr, data, fast), step(rr, data), rtol=1e-5, atol=1e-5)


@pytest.mark.soak
def test_other_fractions_through_the_same_function():
    """Torch makes an input of a number that it has seen to differ, unless it is hidden from it."""
    torch.manual_seed(0)
    parts = {"a": nn.Linear(12, 12), "norm": nn.LayerNorm(12), "b": nn.Linear(12, 6)}
    model, x = Net(lambda m, x: m.b(m.norm(x + m.a(x)))[:, 0], **parts).double(), torch.randn(8, 5, 12).double()

    def loss(rr, x):
        output, term = rr(x)
        return output.square().mean() + term

    fast = compiled(loss)
    for fraction in (0.5, 0.25):
        rr = classic(model, x, fraction=fraction)
        found = [torch.autograd.grad(one(rr, x), list(model.parameters())) for one in (loss, fast)]
        torch.testing.assert_close(*found)
