"""The regularisers in low precision, compiled, under torch.func and on a device."""

from functools import partial

import pytest
import torch

from racecar.orthogonality import srip
from tests.orthogonality.common import ALL, close, net, random
from tests.reverse.test_no_sync import witness


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


def test_compiles_whole():
    """All five, each with its gradients."""
    model = net().float()
    steps = []
    for compiled in (False, True):
        torch._dynamo.reset()
        run = lambda: [f(model, layers=["[01]*", "6"]) for f in ALL]  # noqa: E731
        run = torch.compile(run, backend="eager", fullgraph=True) if compiled else run
        torch.manual_seed(7)
        steps.append([])
        for value in run():
            steps[-1] += [value.detach(), *torch.autograd.grad(value, [model[0].weight, model[1][2].weight])]
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
