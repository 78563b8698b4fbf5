"""Two digits: their data, and the paper's point in small."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from racecar_lab.datasets.digits import load as shipped
from racecar_lab.experiments import digits as digits_module
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.running.work import do
from racecar_lab.training.spec import TrainingOptions
from tests.lab.experiments.untrained import DIGITS, QUICK

pytestmark = pytest.mark.usefixtures("no_data")


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
