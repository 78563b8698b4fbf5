"""Two gloo processes with DDP and FSDP2 around a Racecar, compared with one process on the joined batch. The processes
run all scenarios once; each test checks the result of one."""

import gc
import os
import traceback
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from filelock import FileLock
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from racecar import Unsupported
from racecar.integrations.attached import Attached
from tests.losses import CLASSIC, classic
from tests.networks import NETWORKS, seeded
from tests.other_process import started
from tests.reverse import data_parallel_cases as cases

pytestmark = pytest.mark.forks
RANKS, STEPS = 2, 3


def tokens():
    """Layers over sequences, whose outputs are views."""
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(4, 5, 6)


def encoder():
    model, x = NETWORKS["encoder"]()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return model, x


MODELS = {name: NETWORKS[name] for name in ("mlp", "vgg", "vgg_plain", "attention")}
MODELS |= {"tokens": seeded(tokens), "encoder": seeded(encoder)}


def batch(name, part=None):
    """The data of all ranks, or of one."""
    x = torch.cat([MODELS[name](seed)[1] for seed in range(RANKS)])
    return x if part is None else x.chunk(RANKS)[part]


def train(rr, run, x, task=True, parameters=None):
    """Some steps; the losses, and the gradients and parameters after them, put together from all ranks."""
    optimizer = torch.optim.SGD(parameters or rr.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        output, loss = run(x)
        (loss + (output**2).mean() if task else loss).backward()
        optimizer.step()
        losses.append(loss.detach())
    grads = {name: whole(p.grad) for name, p in rr.named_parameters() if p.grad is not None}
    return torch.stack(losses), grads, {name: whole(p.detach()) for name, p in rr.named_parameters()}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


# --- scenarios: what each rank does -----------------------------------------------------------------------------


def ddp(rank, name, task=True, **settings):
    model, _ = MODELS[name]()
    x = batch(name, rank)
    rr = classic(model, x, **settings)
    return train(rr, DistributedDataParallel(rr), x, task)


def ddp_attached(rank, name, **settings):
    """Around the network itself, whose calls keep the loss aside."""
    model, x = MODELS[name]()[0], batch(name, rank)
    attached, wrapped = Attached(model, mode="auto", **{**CLASSIC, **settings}), DistributedDataParallel(model)
    return train(nn.ModuleDict({"model": model}), lambda x: (wrapped(x), attached.loss()), x)


def shard(model):
    """Every layer or block is a shard of its own, and so is the model."""
    mesh = init_device_mesh("cpu", (RANKS,))
    for child in model.children():
        for part in child if isinstance(child, (nn.ModuleList, nn.Sequential)) else [child]:
            if any(True for _ in part.parameters()):
                fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp(rank, name, task=True, optimizer_first=True, **settings):
    model, x = shard(MODELS[name]()[0]), batch(name, rank)
    model.set_reshard_after_forward(False)
    parameters = list(model.parameters()) if optimizer_first else None
    rr = classic(model, x, **settings)
    return train(rr, rr, x, task, parameters)


def fsdp_as_it_comes(rank, name):
    """Refused when it is made; the model itself still works."""
    model, x = shard(MODELS[name]()[0]), batch(name, rank)
    with pytest.raises(Unsupported) as refused:
        classic(model, x)
    model(x).sum().backward()
    return str(refused.value)


def fsdp_sharded_later(rank, name):
    """The Racecar was made first: its calls refuse, and work as soon as the remedy is taken."""
    model, x = MODELS[name]()[0], batch(name, rank)
    rr = classic(model, x)
    shard(model)
    with pytest.raises(Unsupported) as refused:
        rr(x)
    model.set_reshard_after_forward(False)
    return str(refused.value), train(rr, rr, x)


def fsdp_root_reshards(rank, name):
    """The model is one shard and was told to free it."""
    model, x = MODELS[name]()[0], batch(name, rank)
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)), reshard_after_forward=True)
    with pytest.raises(Unsupported) as refused:
        classic(model, x)
    return str(refused.value)


def fsdp_around(rank, name):
    """The Racecar itself is the one shard: nothing is freed before the reverse pass."""
    model, x = MODELS[name]()[0], batch(name, rank)
    rr = classic(model, x)
    fully_shard(rr, mesh=init_device_mesh("cpu", (RANKS,)))
    return train(rr, rr, x)


def data_parallel(rank, name):
    return cases.CASES[name](cases.X[rank])


MEAN = {"scale": "mean"}
SCENARIOS = {
    "ddp mean vgg": (ddp, "vgg_plain", MEAN),
    "ddp mean mlp": (ddp, "mlp", {"scale": "mean", "mode": "full", "weight": {"*": 0.5, "0": 2}}),
    "ddp mean attention": (ddp, "attention", MEAN),
    "ddp mean loss alone": (ddp, "vgg_plain", {"scale": "mean", "task": False}),
    "ddp mean attached": (ddp_attached, "vgg_plain", MEAN),
    "ddp relative": (ddp, "vgg_plain", {}),
    "ddp slice": (ddp, "mlp", {"fraction": 0.5}),
    "ddp mean linear": (ddp, "vgg_plain", {"scale": "mean", "mode": "linear", "gradient": "weights"}),
    "fsdp mean linear": (fsdp, "vgg_plain", {"scale": "mean", "mode": "linear", "gradient": "weights"}),
    "fsdp mean vgg": (fsdp, "vgg_plain", MEAN),
    "fsdp mean tokens": (fsdp, "tokens", MEAN),
    "fsdp mean encoder": (fsdp, "encoder", MEAN),
    "fsdp mean loss alone": (fsdp, "vgg_plain", {"scale": "mean", "task": False}),
    "fsdp relative": (fsdp, "vgg_plain", {}),
    "fsdp batch norm": (fsdp, "vgg", {}),
    "fsdp slice": (fsdp, "mlp", {"fraction": 0.5}),
    "fsdp layerwise": (fsdp, "mlp", {"mode": "layerwise"}),
    "fsdp optimizer made last": (fsdp, "mlp", {"optimizer_first": False}),
    "fsdp around": (fsdp_around, "mlp", {}),
    "fsdp as it comes": (fsdp_as_it_comes, "vgg_plain", {}),
    "fsdp sharded later": (fsdp_sharded_later, "vgg_plain", {}),
    "fsdp root reshards": (fsdp_root_reshards, "mlp", {}),
}
REFUSED = ("fsdp as it comes", "fsdp sharded later", "fsdp root reshards")
TOGETHER = [key for key in SCENARIOS if key not in REFUSED]
SCENARIOS |= {name: (data_parallel, name, {}) for name in cases.CASES}


def work(rank, folder):
    """One process: every scenario, its result or what went wrong."""
    gc.freeze()  # what it was forked from holds millions of objects, through which each Racecar would look for DDP
    torch.set_num_threads(1)
    warnings.simplefilter("default")  # FSDP tells of outputs that are views
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS, timeout=wait)
    results = {}
    for key, (scenario, name, settings) in SCENARIOS.items():
        try:
            results[key] = scenario(rank, name, **settings)
        except BaseException:
            results[key] = traceback.format_exc()
        dist.barrier()
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"
    with FileLock(f"{folder}.lock"):  # the first of pytest's own workers does it for all
        if not folder.exists():
            folder.mkdir()
            processes = [started(work, rank, str(folder)) for rank in range(RANKS)]
            for process in processes:
                process.join()
            assert [process.exitcode for process in processes] == [0] * RANKS
    ranks = [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]
    return {key: [rank[key] for rank in ranks] for key in SCENARIOS}


def expect(name, joined, task=True, optimizer_first=True, **settings):
    """The same steps in one process: on the joined batch, or with the mean over the ranks' batches."""
    model, x = MODELS[name]()[0], batch(name)
    rr = classic(model, x.chunk(RANKS)[0], **settings)

    def mean_of_ranks(x):
        outputs, losses = zip(*map(rr, x.chunk(RANKS)), strict=True)
        return torch.cat(outputs), torch.stack(losses).mean()

    return train(rr, rr if joined else mean_of_ranks, x, task)


def check(made, expected):
    for result in made:
        assert not isinstance(result, str), result
    losses = torch.stack([loss for loss, _, _ in made]).mean(0)
    torch.testing.assert_close(losses, expected[0], rtol=1e-4, atol=1e-6)
    for _, grads, parameters in made:
        torch.testing.assert_close(grads, expected[1], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(parameters, expected[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", TOGETHER)
def test_the_ranks_together_are_one_process(results, key):
    _, name, settings = SCENARIOS[key]
    check(results[key], expect(name, "mean" in key, **settings))


def test_relative_is_not_the_joined_loss(results):
    """Each rank divides by its own Σd²; this checks that the tests above can see the difference."""
    with pytest.raises(AssertionError):
        check(results["ddp relative"], expect("vgg_plain", True))


REMEDY = "model.set_reshard_after_forward(False)"


@pytest.mark.parametrize("key", REFUSED)
def test_freed_weights_are_refused_with_the_remedy(results, key):
    for result in results[key]:
        message = result if isinstance(result, str) else result[0]
        assert "Traceback" not in message, message
        assert REMEDY in message


def test_the_remedy_helps_a_racecar_that_was_made_before(results):
    made = results["fsdp sharded later"]
    assert not isinstance(made[0], str), made[0]
    check([steps for _, steps in made], expect("vgg_plain", False))


@pytest.mark.parametrize("name", cases.REFUSED)
def test_gradients_that_the_wrapper_does_not_see_are_refused(results, name):
    for message in results[name]:
        assert isinstance(message, str), "each rank trained its own net"
        assert "Traceback" not in message, message
        assert "ddp = DistributedDataParallel(rr), and call ddp(x)" in message


@pytest.mark.parametrize("name", [*cases.AVERAGED, *cases.ALONE])
def test_what_is_averaged_or_need_not_be_is_let_through(results, name):
    for found, truth in zip(results[name], cases.expected(name), strict=True):
        assert not isinstance(found, str), found
        torch.testing.assert_close(found, truth)
