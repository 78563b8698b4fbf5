"""Invertibility equals the regulariser's terms, and reverse passes written by hand."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from racecar.inspect.invertibility import invertibility, relative_error
from racecar.inspect.ssim import ssim
from tests.by_hand import batch_norm, close, lively, rebuild, undo_conv, undo_linear, up
from tests.cases import CASES
from tests.losses import classic
from tests.networks import NETWORKS, call, soak_others


def statistics_of_the_batch(model):
    """What statistics="batch" means: batch norm as in training, all else in evaluation."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.train()
    return model


def share(d, back):
    d, back = d.detach().double().numpy(), back.detach().double().numpy()
    return float(np.square(d - back).sum() / np.square(d).sum())


def double(model, inputs):
    if isinstance(inputs, dict):
        inputs = {key: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for key, x in inputs.items()}
    elif isinstance(inputs, tuple):
        inputs = tuple(x.double() for x in inputs)
    elif inputs.is_floating_point():
        inputs = inputs.double()
    return lively(model), inputs


# --- the numbers


@pytest.mark.parametrize("name", soak_others())
def test_equals_the_terms_of_the_regulariser(name):
    check_terms(name, "batch")


@pytest.mark.parametrize("name", ["vgg", "resnet_pad", "unet_bilinear", "mlp_norm"])
def test_equals_the_terms_with_running_statistics(name):
    check_terms(name, "running")


def check_terms(name, statistics):
    """Σ(d − d')² / Σd² is Racecar's term with scale "relative", in the mode that the reverse pass takes."""
    model, inputs = double(*NETWORKS[name]())
    found = invertibility(model, inputs, statistics=statistics)
    statistics_of_the_batch(model) if statistics == "batch" else model.eval()
    model.requires_grad_(True)  # a Racecar would leave frozen layers out
    rr = classic(model, inputs)
    for rr.mode, got in ((found.mode, "way"), ("layerwise", "layerwise")):
        with torch.no_grad():
            call(rr, inputs)
        assert {d.layer: getattr(d, got) for d in found} == pytest.approx(
            {layer: term.item() for layer, term in rr.terms.items()}, rel=1e-9
        )
    assert [d.name for d in found] == [f"d{i + 1}" for i in range(len(found))]
    assert [(d.layer, d.kind) for d in found] == [(e.name, e.kind) for e in rr.plan]


PLAIN = [name for name in CASES if not name.startswith("join")]


@pytest.mark.parametrize("name", PLAIN)
def test_by_hand(name):
    """The full reverse pass, each layer alone, and the input from every depth, written as equations."""
    model, inputs, by_hand = CASES[name]()
    given = inputs.clone()
    torch.manual_seed(1)  # for a dropout that is always on
    found = invertibility(model, inputs)
    torch.manual_seed(1)
    with torch.no_grad():
        layers = by_hand(statistics_of_the_batch(model), given)
        full, single = rebuild(layers, layerwise=False), rebuild(layers, layerwise=True)
    assert found.mode == "full"
    close(found.inputs, layers[0].d.detach())
    assert list(found.rebuilt) == [f"d{i + 2}" for i in range(len(layers))]
    for i, (depth, layer) in enumerate(zip(found, layers, strict=True)):
        assert (depth.name, depth.layer, depth.note) == (f"d{i + 1}", layer.name, "")
        if "dropout" not in name:  # where d(n+1) is random
            assert depth.way == pytest.approx(share(layer.d, full[layer.name]), rel=1e-8, abs=1e-12)
            assert depth.layerwise == pytest.approx(share(layer.d, single[layer.name]), rel=1e-8, abs=1e-12)
        if "dropout" in name and i == len(layers) - 1:
            continue
        with torch.no_grad():
            y = layer.out
            for one in layers[i::-1]:
                y = one.back(y)
        close(found.rebuilt[f"d{i + 2}"], y)
        assert depth.input == pytest.approx(share(layers[0].d, y), rel=1e-8, abs=1e-12)
    if "dropout" not in name:
        assert found.depths[-1].input == pytest.approx(found.depths[0].way, rel=1e-9)
    assert found.depths[0].input == pytest.approx(found.depths[0].layerwise, rel=1e-9)


def test_the_papers_net_by_hand():
    """Three blocks of conv, norm, activation and pooling, from each depth as in the paper."""
    model, x = double(*NETWORKS["paper_net"]())
    found = invertibility(model, x)
    m = statistics_of_the_batch(model)
    with torch.no_grad():
        d2 = torch.relu(batch_norm(m.bn1, m.conv1(x)))
        d3 = torch.tanh(batch_norm(m.bn2, m.conv2(F.max_pool2d(d2, 2))))
        d4 = torch.sigmoid(batch_norm(m.bn3, m.conv3(F.max_pool2d(d3, 2))))

        def into_d3(y):
            return up(torch.tanh(batch_norm(m.bn2, undo_conv(m.conv3, y))))

        def into_d2(y):
            return up(torch.relu(batch_norm(m.bn1, undo_conv(m.conv2, y))))

        def into_d1(y):
            return undo_conv(m.conv1, y)

        truth = {"d2": into_d1(d2), "d3": into_d1(into_d2(d3)), "d4": into_d1(into_d2(into_d3(d4)))}
    assert list(found.rebuilt) == list(truth)
    for name, back in truth.items():
        close(found.rebuilt[name], back)
    span = float(x.max() - x.min())
    for depth, back in zip(found, truth.values(), strict=True):
        errors = np.square(back.numpy() - x.numpy()).reshape(len(x), -1).mean(1)
        assert depth.psnr == pytest.approx(np.mean(10 * np.log10(span**2 / errors)))
        assert depth.ssim == pytest.approx(ssim(back, x, span).mean().item())
    assert found.range == pytest.approx(span)


def test_range():
    model, x = NETWORKS["paper_net"]()
    own, wide = invertibility(model, x), invertibility(model, x, range=2 * float(x.max() - x.min()))
    for one, other in zip(own, wide, strict=True):
        assert other.psnr == pytest.approx(one.psnr + 20 * math.log10(2), abs=1e-4)
    assert (own.range, wide.range) == pytest.approx((float(x.max() - x.min()), 2 * own.range))
    for bad in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match="range must be greater than 0"):
            invertibility(model, x, range=bad)
    assert invertibility(model, torch.zeros_like(x)).range == 1


@pytest.mark.parametrize("given", ["relu", torch.relu, nn.ReLU()])
def test_input_activation(given):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), torch.rand(4, 6)
    found = invertibility(model, x, input_activation=given)
    with torch.no_grad():
        back = torch.relu(undo_linear(model[0], torch.tanh(model[0](x))))
    torch.testing.assert_close(found.rebuilt["d2"], back)
    assert found.depths[0].layerwise == pytest.approx(share(x, back), rel=1e-5)
    d2 = torch.tanh(model[0](x))
    into_d2 = torch.tanh(undo_linear(model[2], model[2](d2)))  # no relu here
    assert found.depths[1].way == pytest.approx(share(d2, into_d2), rel=1e-5)
    with pytest.raises(ValueError, match="input_activation must be None, a function or a name"):
        invertibility(model, x, input_activation="nope")


def test_relative_error():
    d = torch.tensor([[3.0, 4.0]])
    assert relative_error(d, None) is None
    assert relative_error(d, d) == 0
    assert relative_error(d, torch.zeros_like(d)) == 1
    assert relative_error(d, -d) == 4
    assert relative_error(torch.zeros(1, 2), d) == 0  # as Racecar's term
    assert relative_error(d.half(), 2 * d.half()) == 1


# --- networks that can be run backwards


def test_an_orthogonal_net_gives_everything_back():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 144), nn.Linear(144, 200)).double()
    for layer in model[1:]:
        nn.init.orthogonal_(layer.weight)
    x = torch.rand(3, 1, 12, 12, dtype=torch.float64)
    found = invertibility(model, x)
    for depth in found:
        assert max(depth.way, depth.layerwise, depth.input) < 1e-24
        assert depth.psnr > 200
        assert depth.ssim == pytest.approx(1)
    for back in found.rebuilt.values():
        close(back, x)


# --- norms


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_statistics(training, statistics):
    """The argument chooses the statistics, not the training mode of the model."""
    torch.manual_seed(0)
    model = lively(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)))
    x = torch.randn(8, 6, dtype=torch.float64)
    model.train(training)
    found = invertibility(model, x, statistics=statistics)
    norm = model[1].train(statistics == "batch")
    with torch.no_grad():
        d2 = torch.tanh(batch_norm(norm, model[0](x)))
        into_d2 = torch.tanh(batch_norm(norm, undo_linear(model[3], model[3](d2))))
    assert found.depths[1].way == pytest.approx(share(d2, into_d2), rel=1e-9)
    assert found.depths[0].way == pytest.approx(share(x, undo_linear(model[0], into_d2)), rel=1e-9)


@pytest.mark.parametrize("training", [True, False])
def test_statistics_across_processes(training):
    """In a single process SyncBatchNorm equals batch norm."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(plain).train(training)
    x = torch.randn(8, 6)
    model[1].running_mean.normal_()
    other = nn.Sequential(model[0], nn.BatchNorm1d(5), model[2], model[3])
    other[1].load_state_dict(model[1].state_dict())
    for statistics in ("batch", "running"):
        one, two = (invertibility(m, x, statistics=statistics) for m in (model, other))
        assert [d.way for d in one] == pytest.approx([d.way for d in two])


def test_unknown_statistics():
    with pytest.raises(ValueError, match="statistics must be one of batch, running, not 'mine'"):
        invertibility(nn.Linear(3, 3), torch.rand(2, 3), statistics="mine")


def test_a_batch_of_one():
    model, x = NETWORKS["vgg"]()
    found = invertibility(model, x[:1])
    assert all(depth.input is not None for depth in found)
    model, x = NETWORKS["mlp_norm"]()
    found = invertibility(model, x[:1], statistics="running")
    assert len(found) == 3
    with pytest.raises(ValueError, match="statistics='running'"):  # one value has no statistics
        invertibility(model, x[:1])


# --- how it is shown


def test_record():
    model, x = NETWORKS["paper_net"]()
    found = invertibility(model, x)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (record["mode"], record["range"], len(record["layers"])) == ("full", found.range, 3)
    for got, depth in zip(record["layers"], found, strict=True):
        assert got == vars(depth)
        assert depth.layer in str(found)


def test_nothing_needs_a_gradient():
    model, x = NETWORKS["vgg"]()
    found = invertibility(model, x.requires_grad_())
    assert not any(back.requires_grad for back in found.rebuilt.values())
