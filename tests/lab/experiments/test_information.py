"""The information plane: its task and stages, and what it measures held against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from racecar_lab.datasets import sphere
from racecar_lab.experiment import Split, accuracy
from racecar_lab.experiments.information import bit_count_accuracy
from tests.lab.experiments.pictures import write_task
from tests.lab.experiments.untrained import INFORMATION, lively, trained

pytestmark = pytest.mark.usefixtures("no_data")


# Data


@pytest.mark.parametrize("seed", [0, 1, 1000])
@pytest.mark.parametrize("valid", [0.0, 0.1, 0.25])
def test_information_split(seed, valid):
    config = INFORMATION.Config(valid=valid)
    tasks = INFORMATION.data(config, seed, None)
    x, y = sphere.load()
    truth = {tuple(row): label for row, label in zip(x.tolist(), y.tolist(), strict=True)}
    assert list(tasks) == ["A", "B"]
    for name, task in tasks.items():
        parts = {"train": task.train, "test": task.test, **({"valid": task.valid} if task.valid else {})}
        held = round(valid * 3277)
        sizes = {"train": 3277 - held, "test": 819, **({"valid": held} if held else {})}
        assert {part: len(split) for part, split in parts.items()} == sizes
        rows = [tuple(row) for split in parts.values() for row in split.x.tolist()]
        assert len(set(rows)) == len(rows) == 4096  # every pattern once, in one part
        labels = [label for split in parts.values() for label in split.y.tolist()]
        swapped = name == "B"
        assert labels == [truth[row] ^ swapped for row in rows]
    whole = INFORMATION.data(INFORMATION.Config(), seed, None)["A"]
    assert tasks["A"].test.x.equal(whole.test.x)  # what is held out, is held out of the training set
    assert not whole.test.x.equal(INFORMATION.data(config, seed + 1, None)["A"].test.x)


def test_more_held_out_than_there_is():
    """Of 3277 patterns one must be left on either side."""
    for valid in (1e-5, 0.99999):
        with pytest.raises(ValueError, match="valid"):
            INFORMATION.data(INFORMATION.Config(valid=valid), 0, None)


def labels_of(tasks):
    splits = (tasks["A"].train, tasks["A"].test)
    return {tuple(map(int, row)): label for s in splits for row, label in zip(s.x.tolist(), s.y.tolist(), strict=True)}


def test_a_file_chooses_that_task(tmp_path):
    """By name, by its folder, and whatever it is called: what is named is what is read."""
    truth, other = write_task(tmp_path / "var_u.mat", seed=0), write_task(tmp_path / "mine.mat", seed=1)
    for path, expected in ((tmp_path / "var_u.mat", truth), (tmp_path / "mine.mat", other)):
        (config,) = INFORMATION.configs(INFORMATION.Config(), path)
        assert config == INFORMATION.Config(source="var_u")
        tasks = INFORMATION.data(config, 0, path)
        assert (len(tasks["A"].train), len(tasks["A"].test)) == (3277, 819)
        assert labels_of(tasks) == expected
    (config,) = INFORMATION.configs(INFORMATION.Config(source="var_u"), tmp_path)
    assert labels_of(INFORMATION.data(config, 0, tmp_path)) == truth
    (config,) = INFORMATION.configs(INFORMATION.Config(), tmp_path)
    assert config.source == "sphere"


# Stages


def test_stages_of_information():
    config = INFORMATION.Config(finetune=7)
    told = [(s.name, s.task, s.after, s.regularised, s.epochs, s.variants) for s in INFORMATION.stages(config)]
    assert told == [
        ("A", "A", None, True, None, None),
        ("AA", "A", "A", False, 7, None),
        ("AB", "B", "A", False, 7, None),
        ("B", "B", None, False, None, ("Std",)),
    ]


# What is measured


def test_accuracy():
    """Over several batches, the last one not full."""
    model = lively(INFORMATION.network(INFORMATION.Config())).eval()
    x, y = sphere.load()
    with torch.no_grad():
        truth = (model(x).numpy().argmax(1) == y.numpy()).mean()
    assert 0.1 < truth < 0.9
    for batch in (1, 100, 1024, 4096, 9999):
        n = 4096 if batch > 1 else 50
        expected = truth if batch > 1 else (model(x[:n]).detach().numpy().argmax(1) == y[:n].numpy()).mean()
        assert accuracy(model, Split(x[:n], y[:n]), batch) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("name", ["A", "B"])
def test_the_bit_count_baseline(seed, name):
    """The best of all rules "1 if at least k ones" and "1 if fewer", chosen on the training set."""
    task = INFORMATION.data(INFORMATION.Config(), seed, None)[name]
    ones, y = task.train.x.numpy().sum(1), task.train.y.numpy()
    test, truth = task.test.x.numpy().sum(1), task.test.y.numpy()
    table = []
    for k in range(14):
        for guess, other in ((ones >= k, test >= k), (ones < k, test < k)):
            table.append(((guess == y).sum(), (other == truth).mean()))
    found = bit_count_accuracy(task)
    assert found == pytest.approx(max(table, key=lambda row: row[0])[1])
    assert found > 0.8


def entropy(rows):
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    return -(counts / len(rows) * np.log2(counts / len(rows))).sum()


@pytest.fixture(scope="module")
def plane():
    """An untrained but lively net on task B, and what is measured of it."""
    config = INFORMATION.Config()
    run = trained(INFORMATION, config, seed=2, stage=2)
    lively(run.model)
    return run, INFORMATION.measure(config, run)


def layers_of(run):
    """d1 … d7, the last one after the softmax, and the labels."""
    x = torch.cat((run.task.train.x, run.task.test.x))
    y = torch.cat((run.task.train.y, run.task.test.y)).numpy()
    d = [x]
    with torch.no_grad():
        for module in run.model:
            if isinstance(module, nn.Linear):
                d.append(module(d[-1]))
            elif isinstance(module, nn.Tanh):
                d[-1] = d[-1].tanh()
        d[-1] = d[-1].softmax(1)
    return [one.numpy() for one in d], y


def information(d, y, bins, low, high):
    """I(X;D) and I(D;Y) in bits: every input differs and D follows from it, so I(X;D) = H(D)."""
    codes = np.clip(np.floor((d.astype(np.float64) - low) / (high - low) * bins), 0, bins - 1)
    return entropy(codes), entropy(codes) + entropy(y[:, None]) - entropy(np.column_stack((codes, y)))


def test_the_plane(plane):
    run, found = plane
    rows = found.tables["plane"]
    assert [row["name"] for row in rows] == [f"d{m}" for m in range(1, 8)]
    ds, y = layers_of(run)
    assert np.allclose(ds[-1].sum(1), 1, atol=1e-6)
    expected = [information(d, y, 30, 0 if i in (0, 6) else -1, 1) for i, d in enumerate(ds)]
    assert np.allclose([(row["i_xd"], row["i_dy"]) for row in rows], expected, rtol=0, atol=1e-9)
    assert rows[0]["i_xd"] == pytest.approx(12)
    assert rows[0]["saturated"]
    assert [row["codes"] for row in rows[:1]] == [4096]
    middle, hidden = np.array(expected[1:-1]), np.array(expected[1:])[:, 0]
    assert found.metrics["i_xd"] == pytest.approx(middle[:, 0].mean())
    assert found.metrics["i_dy"] == pytest.approx(middle[:, 1].mean())
    assert found.metrics["i_xd_span"] == pytest.approx(hidden.max() - hidden.min())
    assert found.tables["ceilings"]["h_x"] == pytest.approx(12)
    assert found.tables["ceilings"]["h_y"] == pytest.approx(entropy(y[:, None]))


def test_the_bin_sweep(plane):
    run, found = plane
    ds, y = layers_of(run)
    sweep = found.tables["sweep"]
    assert list(sweep) == ["5", "10", "20", "30", "50", "100"]
    for bins in (5, 100):
        expected = [information(d, y, bins, 0 if i in (0, 6) else -1, 1) for i, d in enumerate(ds)]
        assert np.allclose(sweep[str(bins)], expected, atol=1e-9)
    assert sweep["30"] == [[row["i_xd"], row["i_dy"]] for row in found.tables["plane"]]


def test_the_reverse_loss(plane):
    """Mean over the layers of Σ(d−d')² / Σd², one reverse pass from the output before the softmax."""
    run, found = plane
    linear = [m for m in run.model if isinstance(m, nn.Linear)]
    weights = [(m.weight.detach().double().numpy(), m.bias.detach().double().numpy()) for m in linear]
    d = [torch.cat((run.task.train.x, run.task.test.x)).double().numpy()]
    for i, (w, b) in enumerate(weights):
        d.append(d[-1] @ w.T + b)
        if i < len(weights) - 1:
            d[-1] = np.tanh(d[-1])
    errors, back = [], d[-1]
    for m in reversed(range(len(weights))):
        back = (back - weights[m][1]) @ weights[m][0]
        back = np.tanh(back) if m else back
        errors.append(((d[m] - back) ** 2).sum() / (d[m] ** 2).sum())
    assert found.metrics["reverse_loss"] == pytest.approx(np.mean(errors), rel=1e-5)


def test_accuracies_of_information(plane):
    run, found = plane
    for name, split in (("train_accuracy", run.task.train), ("test_accuracy", run.task.test)):
        with torch.no_grad():
            guess = run.model(split.x).numpy().argmax(1)
        assert found.metrics[name] == pytest.approx((guess == split.y.numpy()).mean())
    assert "valid_accuracy" not in found.metrics
    config = INFORMATION.Config(valid=0.1)
    held = trained(INFORMATION, config)
    with torch.no_grad():
        guess = held.model(held.task.valid.x).numpy().argmax(1)
    measured = INFORMATION.measure(config, held).metrics["valid_accuracy"]
    assert measured == pytest.approx((guess == held.task.valid.y.numpy()).mean())
