"""What is measured of a first layer, and of the input rebuilt from the output: held against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from racecar.inspect import Lpips, ssim
from racecar_lab.experiment import Split, Stage, Task
from racecar_lab.measures.features import class_means, first_layer, rebuilt
from tests.lab.experiments.untrained import DIGITS, PEAKS, QUICK, lively, trained

pytestmark = pytest.mark.usefixtures("no_data")


def by_numpy(w, x, features):
    """Right singular vectors by what they carry, and the cosines of the two best with the features."""
    _, _, v = np.linalg.svd(w, full_matrices=False)
    carried = ((x @ v.T) ** 2).sum(0) / (x**2).sum()
    order = np.argsort(-carried)
    v, carried = v[order], carried[order]
    basis, _ = np.linalg.qr(features.T)
    return v, carried, np.linalg.svd(basis.T @ v[:2].T, compute_uv=False)


@pytest.mark.parametrize(
    "one, config", [(DIGITS, QUICK), *((PEAKS, PEAKS.Config(nets=(n,))) for n in ("linear", "two"))]
)
def test_the_first_layer(one, config):
    run = trained(one, config, seed=4)
    x = run.task.train.x.flatten(1).double().numpy()
    with torch.no_grad():  # the data in the weights, so that the cosines are neither 0 nor 1
        run.model[1].weight[:2] += 0.003 * run.task.train.x[:2].flatten(1) / 10
    if one is DIGITS:
        features = x
    else:
        y = run.task.train.y.numpy()
        features = np.stack([x[y == 0].mean(0), x[y == 1].mean(0)])
        assert np.allclose(class_means(run.task.train.x, run.task.train.y).flatten(1).double().numpy(), features)
    v, carried, cosines = by_numpy(run.model[1].weight.detach().double().numpy(), x, features)
    found = one.measure(config, run)
    assert [found.metrics["cosine_1"], found.metrics["cosine_2"]] == pytest.approx(cosines.tolist(), abs=1e-6)
    assert 0.05 < found.metrics["cosine_1"] < 0.9999
    assert found.metrics["carried"] == pytest.approx(carried[:2].sum(), rel=1e-6)
    assert not any(name.startswith("lpips") for name in found.metrics)
    kept = found.arrays
    assert kept["vectors"].shape == (min(10, len(v)), 1, 28, 28)
    assert np.allclose(np.abs((kept["vectors"].flatten(1).double().numpy() * v[:10]).sum(1)), 1, atol=1e-5)
    assert np.allclose(kept["shares"].numpy(), carried[:10], atol=1e-6)
    assert np.allclose(kept["features"].flatten(1).double().numpy(), features, atol=1e-3)
    # SSIM: all vectors with all features, both as pictures from black to white, the vector under its better sign.
    a, b = (
        torch.tensor(np.stack([(p - p.min()) / (p.max() - p.min()) for p in some])).float() for some in (v, features)
    )
    a = a.view(-1, 1, 28, 28)
    pairs = [(a, one.view(1, 1, 28, 28).expand_as(a)) for one in b]
    values = torch.cat([torch.maximum(ssim(a, one), ssim(1 - a, one)) for a, one in pairs]).numpy()
    assert found.metrics["ssim"] == pytest.approx(np.mean(values), abs=1e-4)


def test_a_layer_that_is_the_data():
    """Both cosines are 1 then, and of a layer across it 0."""
    x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    model = DIGITS.network(QUICK)
    q, _ = torch.linalg.qr(torch.cat((x.flatten(1), torch.randn(10, 784))).T)
    for rows, expected in ((q.T[:10], 1.0), (q.T[2:12], 0.0)):
        with torch.no_grad():
            model[1].weight.copy_(rows * torch.arange(10.0, 0.0, -1.0).unsqueeze(1))
        found = first_layer(model, "1", x, x, None).metrics
        assert [found["cosine_1"], found["cosine_2"]] == pytest.approx([expected] * 2, abs=1e-3)
        assert found["carried"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("where", ["given", "environment"])
@pytest.mark.parametrize(
    "one, config", [(DIGITS, QUICK), (PEAKS, PEAKS.Config(nets=("linear",)))], ids=["digits", "peaks"]
)
def test_lpips_where_there_are_weights(monkeypatch, tmp_path, one, config, where):
    """Without --data the folder is that of RACECAR_DATA, as the command says."""
    (tmp_path / "lpips_alexnet.npz").write_bytes(b"weights")

    class Flat(Lpips):
        def __init__(self):
            pass

        def pairwise(self, a, b):
            return (a.mean((1, 2, 3))[:, None] - b.mean((1, 2, 3))[None]).abs()

    read = []
    monkeypatch.setattr(Lpips, "load", lambda path: read.append(path) or Flat())
    monkeypatch.setenv("RACECAR_DATA", str(tmp_path))
    found = one.measure(config, trained(one, config, folder=tmp_path if where == "given" else None))
    assert read == [tmp_path / "lpips_alexnet.npz"]
    assert "lpips_alexnet" in found.metrics
    assert "lpips_squeezenet1_1" not in found.metrics


def norm(layer, x):
    """Batch norm with the statistics of x."""
    scale, shift = (p.detach().double().numpy() for p in (layer.weight, layer.bias))
    return (x - x.mean(0)) / np.sqrt(x.var(0) + layer.eps) * scale + shift


@pytest.mark.parametrize("net", ["linear", "norm", "two"])
def test_the_rebuilt_input(net):
    """d' = Mᵀ(d − b), with batch norm and ReLU of the layer below on the way; nothing in the model changes."""
    config = PEAKS.Config(nets=(net,))
    model = lively(PEAKS.network(config)).double().eval()
    x = PEAKS.data(config, 0, None)["A"].train.x.double()
    layers = [m for m in model if isinstance(m, nn.Linear)]
    norms = [m for m in model if isinstance(m, nn.BatchNorm1d)]
    weights = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in layers]
    d = x.flatten(1).numpy()
    for i, (w, b) in enumerate(weights):
        d = d @ w.T + b
        d = np.maximum(norm(norms[i], d), 0) if norms else d
    for i in reversed(range(len(weights))):
        w, b = weights[i]
        d = (d - b) @ w
        d = np.maximum(norm(norms[i - 1], d), 0) if i else d
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = rebuilt(model, x)
    assert found.shape == x.shape
    assert np.allclose(found.flatten(1).numpy(), d, rtol=1e-8, atol=1e-6)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    look = PEAKS.recipe(PEAKS.Config(), Stage("A")).look
    kept = look(model, Task(Split(x, x), Split(x, x)))["rebuilt"]
    assert kept.shape == (2, 1, 28, 28)
    assert kept.equal(found[:2])
