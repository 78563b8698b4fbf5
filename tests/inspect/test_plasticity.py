"""Every number of a plasticity report, computed again in NumPy from what forward hooks saw."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.inspect import PlasticityLog, figures, plasticity
from tests.inspect.common import pictures


def dense(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 3))


def convolutional(seed=0):
    torch.manual_seed(seed)
    conv = nn.Conv2d(1, 6, 3, padding=1, stride=2)
    return nn.Sequential(conv, nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(24, 3))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


NETS = {
    "MLP": (dense, pictures(40, 1, 4, 4), {"1": "2", "3": "4", "5": "5"}),
    "conv": (convolutional, pictures(40, 1, 4, 4), {"0": "2", "5": "5"}),
    "transformer": (Transformer, torch.randn(10, 5, 8), {"layers.layers.0.linear1": None, "head": "head"}),
}
"""Net, inputs, and the modules after which a layer's units are seen; None: a relu after it."""


def seen(model, x):
    """Module name → input and output, numpy in float64, of a pass in evaluation mode."""
    kept, model = {}, copy.deepcopy(model).double().eval()

    def keep(name):
        return lambda module, given, made: kept.update({name: (given[0].numpy(), made.numpy())})

    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.ReLU, nn.Tanh, nn.Conv2d)):
            module.register_forward_hook(keep(name))
    with torch.no_grad():
        model(x.double())
    return model, kept


def matrix(module, h):
    """A as a matrix that works on rows, and the rows: of a convolution whole inputs, of a linear layer features."""
    if isinstance(module, nn.Linear):
        return module.weight.detach().numpy(), h.reshape(-1, h.shape[-1])
    basis = torch.eye(h[0].size, dtype=torch.float64).reshape(-1, *h.shape[1:])
    made = nn.functional.conv2d(basis, module.weight.detach(), None, module.stride, module.padding)
    return made.flatten(1).T.numpy(), h.reshape(len(h), -1)


def rank(values):
    share = values / values.sum()
    share = share[share > 0]
    return np.exp(-(share * np.log(share)).sum())


@pytest.mark.parametrize("name", NETS)
def test_every_number(name):
    make, x, layers = NETS[name]
    model = make()
    if name == "MLP":  # two units that never wake, and one that hardly does
        model[1].bias.data[:2] = -100
        model[1].weight.data[2], model[1].bias.data[2] = 0, 1e-5
    found = plasticity(model, x)
    twin, kept = seen(model, x)
    assert name == "transformer" or [one.layer for one in found] == list(layers)
    for layer, after in layers.items():
        one, module = found[layer], twin.get_submodule(layer)
        h, made = kept[layer]
        units = np.maximum(made, 0) if after is None else kept[after][1]
        units = np.moveaxis(units, 1, -1) if isinstance(module, nn.Conv2d) else units
        units = units.reshape(-1, units.shape[-1])
        size = np.abs(units).mean(0)
        assert one.units == units.shape[1]
        assert one.dead == pytest.approx(np.mean(size <= 0.01 * size.mean()))
        assert one.rank == pytest.approx(rank(np.linalg.svd(units, compute_uv=False)), rel=1e-4)
        a, rows = matrix(module, h)
        assert one.error == pytest.approx(((rows @ a.T @ a - rows) ** 2).sum() / (rows**2).sum(), rel=1e-4)
        _, values, directions = np.linalg.svd(rows, full_matrices=False)
        gains = np.linalg.norm(a @ directions.T, axis=0)
        order = np.argsort(gains)
        reached = np.cumsum(values[order] ** 2) / (values**2).sum()
        expected = [gains[order][np.argmax(reached >= share)] for share in (0.1, 0.5, 0.9)]
        assert [one.low, one.middle, one.high] == pytest.approx(expected, rel=1e-3)
    if name == "MLP":
        assert found["1"].dead == 3 / 12


@pytest.mark.parametrize("name", NETS)
def test_nothing_changes(name):
    make, x, _ = NETS[name]
    model = make().train()
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    rr = Racecar(model, x)
    assert str(plasticity(rr, x)) == str(plasticity(model, x))
    assert torch.equal(random, torch.get_rng_state())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(module.training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_an_isometry_and_a_dead_net():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    nn.init.orthogonal_(model[0].weight)
    x = torch.randn(30, 6)
    one = plasticity(model, x)["0"]
    assert [one.low, one.middle, one.high, 1 + one.error] == pytest.approx([1] * 4, abs=1e-5)
    model[0].bias.data -= 100
    first, last = plasticity(model, x)
    assert (first.dead, first.rank) == (1, 0)
    assert (last.low, last.middle, last.high, last.error) == (None, None, None, 0)
    model[0].weight.data[:] = torch.nan
    assert "nan" in str(plasticity(model, x))


def test_a_training_that_loses_it_is_told_from_one_that_does_not():
    """Compared with the start: a copy whose first layer dies, and the net itself."""
    make, x, _ = NETS["MLP"]
    model = make()
    log = PlasticityLog(model, x, every=2)
    for _ in range(3):
        log.step()
    assert [step for step, _ in log.history] == [0, 2]
    assert log.history[-1][1].signs == {}
    assert "No sign" in str(log)
    with torch.no_grad():
        model[1].bias[:9] -= 100
        model[3].weight *= 30
    log.step()
    assert [step for step, _ in log.history] == [0, 2, 4]
    assert log.history[-1][1].signs["1"][:2] == ["dead units", "rank"]
    assert "large gains" in log.history[-1][1].signs["3"]
    assert "Signs of lost plasticity since the start in" in str(log)
    assert f"({100 * log.history[0][1]['1'].dead:.0f} %)" in str(log)
    with pytest.raises(ValueError, match="another net"):
        plasticity(convolutional(), x, start=log.history[0][1])
    with pytest.raises(ValueError, match="at least 1"):
        PlasticityLog(model, x, every=0)

    figure = figures.plasticity_figure(log.history)
    for axis, name, factor in zip(figure.axes, ("dead", "rank", "middle", "error"), (100, 100, 1, 1), strict=True):
        for i, layer in enumerate("135"):
            values = [factor * getattr(found[layer], name) for _, found in log.history]
            values = [value / log.history[0][1][layer].units for value in values] if name == "rank" else values
            assert list(axis.lines[i].get_xdata()) == [0, 2, 4]
            assert list(axis.lines[i].get_ydata()) == pytest.approx(values)


def test_loggers_of_both_kinds():
    class Lightnings:
        def log_metrics(self, metrics, step):
            kept.append((step, metrics))

    class Writer:
        def add_scalar(self, name, value, step):
            written.setdefault(step, {})[name] = value

    kept, written = [], {}
    make, x, _ = NETS["MLP"]
    model = make()
    for logger in (Lightnings(), Writer()):
        log = PlasticityLog(model, x, every=1, logger=logger)
        log.step()
    found = log.history[0][1]
    assert kept == list(written.items())
    assert [step for step, _ in kept] == [0, 1]
    assert kept[0][1]["plasticity/dead/1"] == found["1"].dead
    assert len(kept[0][1]) == 3 * 6
