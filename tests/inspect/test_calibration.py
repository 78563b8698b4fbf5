"""Reverse statistics of a deployed net: kept in training, or calibrated afterwards."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from racecar import Racecar
from racecar.inspect import activations, calibrate, invertibility, leakage, singular_vectors
from racecar.reverse.reverse_statistics import ReverseStatistics
from tests.by_hand import close
from tests.losses import classic
from tests.reverse.reverse_cases import back, batches, check, net


def digits():
    """A convolutional net with batch norm, trained for some steps to tell digits apart with the reverse loss."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y)
    parts = []
    for inner, outer in ((1, 16), (16, 24)):
        parts += [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
    model = nn.Sequential(*parts, nn.Conv2d(24, 24, 3, padding=1), nn.Flatten(), nn.Linear(24 * 64, 10))
    rr = Racecar(model, x[:64], mode="full", weight={"0": 1, "3": 1, "6": 1}, input_activation="relu", fraction=0.5)
    step = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        some = torch.randint(1500, (64,))
        output, loss = rr(x[some])
        step.zero_grad()
        (F.cross_entropy(output, y[some]) + loss).backward()
        step.step()
    return rr, x[:1500], x[1500:]


def relative(x, rebuilt):
    return float((x - rebuilt).square().sum() / x.square().sum())


@pytest.fixture(scope="module")
def trained():
    return digits()


def errors(rr, x):
    """The relative error of the rebuilt input: a batch by batch statistics, and single samples in evaluation mode."""
    with torch.no_grad():
        batch = relative(x, copy.deepcopy(rr).train().reconstruct(x)[0])
        single = [relative(one, rr.eval().reconstruct(one)[0]) for one in x[:32].split(1)]
    return batch, sum(single) / len(single)


@pytest.mark.soak
def test_a_deployed_net_can_be_run_backwards(trained):
    rr, _, x = trained
    batch, single = errors(rr, x)
    bare = Racecar(rr.model, x[:2], mode="full", weight={"0": 1, "3": 1, "6": 1}, input_activation="relu")
    _, before = errors(bare, x)
    print(f"batch statistics {batch:.3f}, reverse ones {single:.3f}, the model's own {before:.3f}")
    assert single < 1.25 * batch
    assert before > 3 * single


@pytest.mark.soak
def test_calibrated(trained):
    """A model without statistics gets some for every reverse pass, and is not changed itself."""
    rr, data, x = trained
    model = rr.model
    before = copy.deepcopy(model.state_dict())
    found = calibrate(model, [(part, None) for part in data[:600].split(200)])
    close(model.state_dict(), before)
    many, one = invertibility(model, x, input_activation="relu"), x[:1]
    single = invertibility(model, one, statistics=found, input_activation="relu")
    bare = invertibility(model, one, statistics="running", input_activation="relu")
    for depth, by_batch, own in list(zip(single, many, bare, strict=True))[1:3]:
        assert depth.input < 1.6 * by_batch.input
        assert depth.input < own.input / 2
    leaks = leakage(model, one, statistics=found, input_activation="relu")
    assert leaks.leaks[2].adjusted > 0.5
    again = ReverseStatistics.restore(pickle.loads(pickle.dumps(found.export())))
    assert invertibility(model, one, statistics=again, input_activation="relu").to_dict() == single.to_dict()


def test_calibration_by_hand():
    """Every batch has the same weight; the forward pass uses the model's running statistics."""
    model = net().eval()
    found = calibrate(model, batches()).export()
    with torch.no_grad():
        for mode, layerwise in (("full", False), ("layerwise", True)):
            seen = [back(model, x, layerwise, 8)[0] for x in batches()]
            for key in ("3:0", "5:0"):
                mean = torch.stack([one[key].mean(0) for one in seen]).mean(0)
                var = torch.stack([one[key].var(0) for one in seen]).mean(0)
                close((found[f"{mode} from 5/{key}.mean"], found[f"{mode} from 5/{key}.var"]), (mean, var))


def test_a_racecar_is_calibrated():
    model = net().eval()
    rr = classic(model, x := batches()[0], mode="full")
    calibrate(rr, batches())
    with torch.no_grad():
        seen = [back(model, one, False, 8)[0] for one in batches()]
        kept = {
            key: tuple(
                torch.stack([f(one[key]) for one in seen]).mean(0) for f in (lambda y: y.mean(0), lambda y: y.var(0))
            )
            for key in seen[0]
        }
        check(rr, kept, 4)
        close(rr.reconstruct(x[:1]), back(model, x[:1], False, 1, kept)[1])
    with pytest.raises(ValueError, match="no batches"):
        calibrate(rr, [])


def test_inspect_takes_a_racecar():
    rr = classic(net(), x := batches()[0], mode="full")
    with pytest.raises(ValueError, match="no reverse statistics"):
        invertibility(rr, x, statistics="reverse")
    assert invertibility(rr, x).to_dict() == invertibility(rr.model, x).to_dict()
    for one in batches():
        rr(one)
    rr.eval()
    found = invertibility(rr, x)
    close(found.rebuilt["d4"], rr.reconstruct(x)[0])
    assert leakage(rr, x).leaks[-1].explained == leakage(rr, found).leaks[-1].explained
    assert [one.layer for one in activations(rr, x)] == [one.layer for one in activations(rr.model, x)]
    close(singular_vectors(rr, "0").values, singular_vectors(rr.model, "0").values)
