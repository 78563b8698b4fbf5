"""A Racecar beside gradient accumulation, GradScaler and EMA, and the export of the trained model."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from racecar import Racecar


@pytest.fixture
def x():
    return torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), nn.Tanh(),
        nn.Linear(5, 2),
    )  # fmt: skip


def gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_accumulation(model, x):
    """With scale "mean" the gradients of micro-batches, each divided by their number, add up to that of the whole
    batch."""
    model[1] = nn.Identity()  # whose statistics are those of the batch
    rr = Racecar(model, x, scale="mean", weight=0.5)
    output, loss = rr(x)
    (output.square().mean() + loss).backward()
    whole = gradients(model)
    model.zero_grad()
    for part in x.split(2):
        output, loss = rr(part)
        ((output.square().mean() + loss) / 4).backward()
    for mine, other in zip(gradients(model), whole, strict=True):
        torch.testing.assert_close(mine, other)


def test_grad_scaler(model, x):
    rr, scaler = Racecar(model, x, weight=0.5), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    start = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    output, loss = rr(x)
    scaler.scale(output.square().mean() + loss).backward()
    scaler.step(optimiser)
    scaled = [parameter.detach().clone() for parameter in model.parameters()]
    model.load_state_dict(start)
    optimiser.zero_grad()
    output, loss = rr(x)
    (output.square().mean() + loss).backward()
    optimiser.step()
    for mine, other in zip(model.parameters(), scaled, strict=True):
        torch.testing.assert_close(mine.detach(), other)


def trained(model, x):
    rr, optimiser = Racecar(model, x, weight=0.5), torch.optim.SGD(model.parameters(), 0.1)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    kept = []
    for _ in range(3):
        output, loss = rr(x)
        optimiser.zero_grad()
        (F.cross_entropy(output, torch.arange(8) % 2) + loss).backward()
        optimiser.step()
        ema.update_parameters(model)
        kept.append([parameter.detach().clone() for parameter in model.parameters()])
    return ema, kept


def test_ema(model, x):
    """Of the model itself; it has the model's names, and weights that are averages."""
    names = list(model.state_dict())
    ema, kept = trained(model, x)
    assert list(ema.module.state_dict()) == names
    for mine, first, second, third in zip(ema.module.parameters(), *kept, strict=True):
        torch.testing.assert_close(mine.detach(), first / 4 + second / 4 + third / 2)


@pytest.mark.soak
def test_exported(model, x, tmp_path):
    """The export has the same parameters, operations and output as without a Racecar."""
    plain = copy.deepcopy(model).eval()
    trained(model, x)
    plain.load_state_dict(model.state_dict())
    model.eval()
    found, other = (torch.export.export(one, (x,)) for one in (model, plain))
    assert [node.target for node in found.graph.nodes] == [node.target for node in other.graph.nodes]
    assert set(found.state_dict) == set(plain.state_dict())
    torch.testing.assert_close(found.module()(x), plain(x))

    onnx_reference = pytest.importorskip("onnx.reference")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(found, (), tmp_path / "model.onnx", verbose=False)
    session = onnx_reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    (output,) = session.run(None, {session.input_names[0]: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), plain(x).detach(), rtol=1e-4, atol=1e-5)
