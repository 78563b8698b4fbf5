"""The experiments: their data, what they measure held against NumPy, and what they say of the paper."""

from collections import Counter
from dataclasses import fields, replace
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch import nn

from racecar.inspect import Lpips, ssim
from racecar.lab.datasets import sphere
from racecar.lab.datasets.digits import load as shipped
from racecar.lab.experiment import Split, Stage, Task, Trained, accuracy
from racecar.lab.experiments import EXPERIMENTS, PAPER, experiment
from racecar.lab.experiments import digits as digits_module
from racecar.lab.experiments.information import WIDTHS, bit_count_accuracy
from racecar.lab.measures.features import class_means, first_layer, rebuilt
from racecar.lab.running.jobs import make_jobs
from racecar.lab.running.results import Store
from racecar.lab.running.work import Maker, do
from racecar.lab.training.spec import TrainingOptions
from racecar.lab.training.variants import VARIANTS

DIGITS, PEAKS, INFORMATION = (experiment(name) for name in ("digits", "peaks", "information"))
QUICK = DIGITS.Config(**DIGITS.quick)


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    """What runs without a data folder runs without any."""
    monkeypatch.setenv("RACECAR_DATA", str(tmp_path / "nothing"))


def trained(one, config, seed=0, stage=0, **more):
    """An untrained net, as if it had been trained."""
    torch.manual_seed(seed)
    stage = one.stages(config)[stage]
    task = one.data(config, seed, None)[stage.task]
    model = one.network(config).eval()
    return Trained(stage, model, task, seed, "Std", torch.device("cpu"), **more)


def lively(model):
    """With biases and running statistics that are not those of a new net."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.bias.normal_()
            if isinstance(module, nn.BatchNorm1d):
                for value in (module.weight, module.bias, module.running_mean):
                    value.normal_()
                module.running_var.uniform_(0.5, 2)
    return model


# Data


def test_digits_are_a_new_pair_for_every_seed():
    pairs, classes = set(), Counter()
    images, labels = shipped()
    known = {one.numpy().tobytes(): int(label) for one, label in zip(images, labels, strict=True)}
    for seed in range(60):
        task = DIGITS.data(QUICK, seed, None)["A"]
        x, y = task.train.x, task.train.y
        assert x.shape == (2, 1, 28, 28)
        assert x.dtype == torch.float32
        assert y[0] != y[1]
        assert x.min() == 0
        assert 200 < x.max() <= 255
        assert [known[one.to(torch.uint8).numpy().tobytes()] for one in x] == y.tolist()
        assert task.test.x is x
        pairs.add(x.numpy().tobytes())
        classes.update(y.tolist())
    assert len(pairs) > 50
    assert set(classes) == set(range(10))
    again = DIGITS.data(QUICK, 3, None)["A"].train.x
    assert again.equal(DIGITS.data(QUICK, 3, None)["A"].train.x)


def test_digits_from_all_of_mnist(monkeypatch, tmp_path):
    asked = []
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (300, 1, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.arange(300) % 10

    def load(folder, split):
        asked.append((folder, split))
        return images, labels

    monkeypatch.setattr(digits_module, "MNIST", SimpleNamespace(load=load))
    found = [DIGITS.data(DIGITS.Config(), seed, tmp_path)["A"].train for seed in range(20)]
    assert set(asked) == {(tmp_path, "train")}
    assert all(pair.y[0] != pair.y[1] for pair in found)
    assert len({pair.x.numpy().tobytes() for pair in found}) == 20


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


def write_task(path, seed=0):
    patterns = np.array([[number >> bit & 1 for bit in range(12)] for number in range(4096)], dtype=np.uint8)
    labels = np.random.default_rng(seed).integers(0, 2, (1, 4096)).astype(np.uint8)
    savemat(path, {"F": patterns, "y": labels})
    return {tuple(row): int(label) for row, label in zip(patterns.tolist(), labels[0], strict=True)}


def labels_of(tasks):
    splits = (tasks["A"].train, tasks["A"].test)
    return {tuple(map(int, row)): label for s in splits for row, label in zip(s.x.tolist(), s.y.tolist(), strict=True)}


def test_a_file_chooses_that_task(tmp_path):
    """By name, by its folder, and whatever it is called: what is named is what is read."""
    truth, other = write_task(tmp_path / "var_u.mat"), write_task(tmp_path / "mine.mat", seed=1)
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


# Networks and stages


def test_networks():
    """As the paper has them."""

    def parts(model):
        return [
            f"{m.in_features}-{m.out_features}" if isinstance(m, nn.Linear) else type(m).__name__
            for m in model.modules()
            if not isinstance(m, (nn.Sequential, nn.Flatten))
        ]

    assert parts(DIGITS.network(QUICK)) == ["784-10"]
    after = ["BatchNorm1d", "ReLU"]
    nets = {"linear": ["784-2"], "norm": ["784-2", *after], "two": ["784-128", *after, "128-2", *after]}
    for net, expected in nets.items():
        assert parts(PEAKS.network(PEAKS.Config(nets=(net,)))) == expected
    widths = [f"{a}-{b}" for a, b in pairwise(WIDTHS)]
    expected = [part for width in widths for part in (width, "Tanh")][:-1]
    assert WIDTHS == (12, 10, 7, 5, 4, 3, 2)
    assert parts(INFORMATION.network(INFORMATION.Config())) == expected


def test_stages_of_information():
    config = INFORMATION.Config(finetune=7)
    told = [(s.name, s.task, s.after, s.regularised, s.epochs, s.variants) for s in INFORMATION.stages(config)]
    assert told == [
        ("A", "A", None, True, None, None),
        ("AA", "A", "A", False, 7, None),
        ("AB", "B", "A", False, 7, None),
        ("B", "B", None, False, None, ("Std",)),
    ]


def test_the_authors_coefficients():
    """λ/2 of the sum over the batch; β on σ², from one product."""
    for one, strength in ((DIGITS, 1e-5), (PEAKS, 1e-6)):
        config = one.Config()
        for name in ("RR", "lRR", "RR1"):
            assert one.coefficient(config, name) == strength / 2
        assert one.coefficient(config, "Ort") == 0.1
        assert one.reverse(config)["scale"] == "sum"
        assert one.orthogonality(config) == {"power": 1, "squared": True}
        assert config.lr == 1e-4
    assert PEAKS.Config().epochs == 5000


# What is measured


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


# What is said of the paper


def test_the_papers_figures():
    """As it prints them; the spread of RR in the first is a misprint and left out."""
    told = {
        one.name: {(p.metric, p.stage, p.variant, p.value, p.spread) for p in one.paper} for one in EXPERIMENTS.values()
    }
    first = {("RR", 0.282, None), ("Std", 0.411, 0.05), ("Ort", 0.403, 0.031)}
    second = {("RR", 0.217, 0.022), ("Std", 0.500, 0.002), ("Ort", 0.495, 0.006)}
    assert told["digits"] == {("lpips_alexnet", "A", *row) for row in first}
    assert told["peaks"] == {("lpips_alexnet", "A", *row) for row in second}
    assert told["mnist"] == {
        ("test_accuracy", stage, variant, value, None)
        for stage, variant, value in (
            ("A", "RR", 0.9810), ("A", "Std", 0.9827), ("A", "Ort", 0.9792), ("AA", "RR", 0.9859), ("AA", "Std", 0.9842)
        )
    }  # fmt: skip
    assert told["information"] == set()  # it has figures there, but prints no numbers
    assert {tuple(p.where["nets"]) for p in PEAKS.paper} == {("norm",)}  # "one fully connected layer, with BN and ReLU"
    assert "misprint" in next(p.note for p in DIGITS.paper if p.variant == "RR")


@pytest.mark.parametrize("name", ["digits", "peaks", "information"])
def test_claims_can_be_judged(name):
    """Of metrics that are measured, of stages, variants and settings that there are; none twice."""
    one = experiment(name)
    configs = [QUICK] if name == "digits" else one.configs(one.Config(), None)
    measured = {*one.measure(configs[0], trained(one, configs[0])).metrics, "lpips_alexnet"}
    known = {f.name for f in fields(one.Config)}
    stages = {stage.name for stage in one.stages(configs[0])}
    for claim in (*one.claims, *one.paper):
        assert claim.metric in measured
        assert claim.stage in stages
        assert set(claim.where) <= known
        held = [c.to_dict() for c in configs]
        assert any(all(c[field] == value for field, value in claim.where.items()) for c in held)
    for claim in one.claims:
        assert {claim.better, claim.than} <= set(one.variants)
        assert claim.higher is (claim.metric not in ("lpips_alexnet", "i_xd_span"))
    assert len({claim.text for claim in one.claims}) == len(one.claims) >= 4


def test_claims_are_the_papers():
    """Ours is the one that is better: in every network, and on either task."""
    assert {claim.better for one in EXPERIMENTS.values() for claim in one.claims} == {"RR", "lRR", "RR1"}
    others, nets = ("Std", "Ort"), ("linear", "norm", "two")
    assert {(c.than, c.metric) for c in DIGITS.claims} == set(product(others, ("cosine_2", "lpips_alexnet")))
    assert {(c.than, *c.where["nets"]) for c in PEAKS.claims} == set(product(others, nets))
    found = {(c.than, c.stage, c.metric) for c in INFORMATION.claims}
    assert found >= set(product(others, ("AA", "AB"), ("test_accuracy",)))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_can_be_read_of_it(name):
    one = experiment(name)
    assert one.name == name
    assert one.title
    assert one.section
    assert one.summary.endswith(".")
    assert set(one.variants) <= set(VARIANTS)
    assert {"Std", "RR"} <= set(one.variants)
    assert ("Ort" in one.variants) is (one in PAPER or name == "few-labels")
    assert one.seeds == (10 if name in ("information", "slices", "few-labels") else 5)
    assert one.Config(**one.quick) != one.Config()


def test_unknown_experiment():
    with pytest.raises(ValueError, match="no experiment 'peak'; did you mean 'peaks'?"):
        experiment("peak")
    with pytest.raises(ValueError, match="the experiments are: digits, peaks, information"):
        experiment("xyz")


# The paper's point, in small


def test_two_digits_in_the_singular_vectors(tmp_path):
    """RR's carry both digits, Std's and Ort's neither; a shorter training with larger steps than the paper's."""
    config = replace(QUICK, epochs=400, lr=5e-4)
    store, found = Store(tmp_path), {}
    for job in make_jobs(DIGITS, config, ["Std", "Ort", "RR"], [0], None):
        do(job, store, TrainingOptions(), Maker("test", "here"))
        run = store.get(job.ids["A"])
        found[job.variant] = run.metrics
        pictures = run.arrays["rebuilt"]
        assert pictures.shape == (9, 2, 1, 28, 28)  # eight looks on the way, and the end
    assert found["RR"]["cosine_2"] > 0.95
    assert max(found[name]["cosine_1"] for name in ("Std", "Ort")) < 0.3
    truth = DIGITS.data(config, 0, None)["A"].train.x
    assert float((pictures[-1] - truth).square().sum() / truth.square().sum()) < 0.05  # RR's, the last one
    assert float((pictures[0] - truth).square().sum() / truth.square().sum()) > 0.5
