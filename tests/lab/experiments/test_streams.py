"""The tasks of a stream, and the measurements while nets learn them."""

from dataclasses import replace

import pytest
import torch

from racecar_lab.datasets import Source
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.streams.config import PROTOCOLS, StreamsConfig
from racecar_lab.experiments.streams.drawing import Stream, draw_task, order
from racecar_lab.experiments.streams.learning import Learning
from racecar_lab.experiments.streams.pool import pool_of
from racecar_lab.streams import METHODS, StreamStack

PERMUTED = StreamsConfig(images=24, batch=5, tests=7, tasks=4, passes=2)
LABELS = replace(PERMUTED, stream="labels")
PAIRS = replace(PERMUTED, stream="pairs", images=8, batch=4, tests=4)


def pool(classes=10, each=6):
    """A pool of different pictures: the first pixel of each is its number."""
    y = torch.arange(classes).repeat(each)
    x = torch.rand(len(y), 1, 4, 5, generator=torch.Generator().manual_seed(0))
    x[:, 0, 0, 0] = torch.arange(len(y)) + 1.0
    return Task(Split(x, y), Split(x + 1000, y))


POOL = pool()


def same(task, other):
    return all(a is b is None or torch.equal(a, b) for a, b in zip(task, other, strict=True))


@pytest.mark.parametrize("config", [PERMUTED, LABELS, PAIRS], ids=lambda config: config.stream)
def test_a_task_follows_from_seed_and_number(config):
    """And from nothing else: other seeds and numbers give other tasks."""
    first = draw_task(config, POOL, 3, 1)
    assert same(first, draw_task(replace(config, lr=0.5, optimiser="sgd", net="mlp6"), POOL, 3, 1))
    assert not same(first, draw_task(config, POOL, 3, 2))
    assert not same(first, draw_task(config, POOL, 1003, 1))
    assert len(first.chosen.unique()) == len(first.chosen) == config.size


def test_permuted_digits():
    """All tasks have the same pictures and their true labels, with the pixels in a different order."""
    tasks = [draw_task(PERMUTED, POOL, 0, number) for number in range(3)]
    for task in tasks:
        assert task.pixels.sort().values.tolist() == list(range(20))
        assert torch.equal(task.chosen, tasks[0].chosen)
        assert torch.equal(task.y, POOL.train.y[task.chosen])
        assert torch.equal(task.test_y, POOL.test.y[task.tests])
    assert len({tuple(task.pixels.tolist()) for task in tasks}) == 3
    x, y = Stream(PERMUTED, POOL, [0], "cpu").task(2).test(slice(1, 4))
    for i, at in enumerate(tasks[2].tests[1:4]):
        assert torch.equal(x[0, i].flatten(), POOL.test.x[at].flatten()[tasks[2].pixels])
    assert torch.equal(y[0], tasks[2].test_y[1:4])


def test_random_labels():
    """All tasks have the same pictures; labels are uniform over the classes and independent of the pictures."""
    config = replace(LABELS, images=60)
    tasks = [draw_task(config, POOL, 0, number) for number in range(50)]
    labels = torch.stack([task.y for task in tasks])
    assert all(torch.equal(task.chosen, tasks[0].chosen) for task in tasks)
    assert (labels.flatten().bincount(minlength=10) - 300).abs().max() < 80  # of 3000; 5 standard deviations
    assert (labels == POOL.train.y[tasks[0].chosen]).float().mean() < 0.15
    assert tasks[0].tests.numel() == 0


def test_pairs_of_classes():
    """Each class is used once before any class is used again; test pictures are of the task's two classes."""
    tasks = [draw_task(PAIRS, POOL, 0, number) for number in range(10)]
    for turn in (tasks[:5], tasks[5:]):
        kinds = [POOL.train.y[task.chosen].unique().tolist() for task in turn]
        assert sorted(kind for pair in kinds for kind in pair) == list(range(10))
    for task in tasks:
        for pictures, at, y in ((POOL.train, task.chosen, task.y), (POOL.test, task.tests, task.test_y)):
            zero, first = (pictures.y[at][y == label].unique() for label in (0, 1))
            assert len(zero) == len(first) == 1
        assert set(POOL.test.y[task.tests].tolist()) == set(POOL.train.y[task.chosen].tolist())
        assert task.y.sum() * 2 == len(task.y) == 8


def test_every_pass_goes_through_all_samples_once():
    passes = [order(PERMUTED, 24, 0, number, repeat) for number in (0, 1) for repeat in (0, 1)]
    for batches in passes:
        assert batches.shape == (4, 5)  # four of 24 are left out
        assert len(batches.unique()) == 20
    assert len({tuple(batches.flatten().tolist()) for batches in passes}) == 4


@pytest.mark.parametrize("stream", PROTOCOLS)
def test_a_search_sees_no_test_picture(stream, monkeypatch):
    """And no net trains on the pictures that are held out for a search."""
    opened = set()

    def load(self, folder, split):
        opened.add(split)
        numbers = torch.arange(240)
        return numbers.to(torch.uint8).view(-1, 1, 1, 1), numbers % 4

    monkeypatch.setattr(Source, "load", load)
    config = StreamsConfig(stream=stream, net="kumar", images=100, batch=4)
    tested = config.protocol.tested
    chosen = pool_of(replace(config, valid=0.25), None)
    assert opened == {"train"}
    train, held = (set((255 * split.x).round().flatten().tolist()) for split in (chosen.train, chosen.test))
    assert len(train) == 180
    assert len(held) == (60 if tested else 0)
    assert not train & held
    assert chosen.train.y.bincount().tolist() == [45] * 4
    pool_of(config, None)
    assert opened == ({"train", "test"} if tested else {"train"})


class BatchRecorder:
    """Records the batches of nets instead of training them."""

    def __init__(self, monkeypatch):
        self.batches = []

        def step(nets, x, y, earlier=None):
            self.batches.append((x.clone(), y.clone(), earlier))
            return torch.stack([torch.zeros(len(x)), (y == 1).float().mean(1)], 1)

        monkeypatch.setattr(StreamStack, "step", step)

    def train(self, method, seeds, config=PERMUTED):
        """A finished ``Learning``, and the batches of all of its steps."""
        self.batches = []
        learning = Learning(config, METHODS[method], POOL, seeds, METHODS["Std"].settings("adam")[: len(seeds)])
        while not learning.over:
            learning.advance()
        return learning, self.batches


@pytest.mark.parametrize("config", [PERMUTED, PAIRS], ids=lambda config: config.stream)
def test_every_method_sees_the_same_stream(config, monkeypatch):
    """With any number of nets and seeds in the stack."""
    recorder = BatchRecorder(monkeypatch)
    _, alone = recorder.train("Std", [7], config)
    _, stacked = recorder.train("linear on earlier h", [2, 7, 7], config)
    assert len(alone) == len(stacked) == (4 * 2 * 4 if config is PERMUTED else 4 * 2 * 2)  # tasks, passes, batches
    for (x, y, _), (others, labels, _) in zip(alone, stacked, strict=True):
        for net in (1, 2):
            assert torch.equal(x[0], others[net])
            assert torch.equal(y[0], labels[net])
        assert not torch.equal(others[0], others[1])


def test_earlier_samples_are_of_the_task_before(monkeypatch):
    """Their pixels are permuted as in that task; in the first task there are no earlier samples."""
    _, batches = BatchRecorder(monkeypatch).train("linear on earlier h", [0])
    first, second = batches[:8], batches[8:16]
    assert all(earlier is None for *_, earlier in first)
    pixels = draw_task(PERMUTED, POOL, 0, 0).pixels
    pictures = {tuple(picture.flatten()[pixels].tolist()) for picture in POOL.train.x}
    assert {tuple(picture.flatten().tolist()) for *_, earlier in second for picture in earlier[0]} <= pictures


def test_what_is_measured(monkeypatch):
    """Accuracy while learning is the mean over the batches of a task, and of the second half of the tasks."""
    learning, batches = BatchRecorder(monkeypatch).train("Std", [0, 1])
    monkeypatch.setattr(StreamStack, "outputs", lambda nets, x: torch.eye(10)[1].expand(*x.shape[:2], 10))
    by_task = torch.stack([(y == 1).float().mean(1) for _, y, _ in batches]).view(4, 8, 2).mean(1)
    for i, measured in enumerate(learning.measured(arrays=True)):
        assert measured.arrays["online"].tolist() == pytest.approx(by_task[:, i].tolist())
        assert measured.metrics["online_accuracy"] == pytest.approx(float(by_task[2:, i].mean()), rel=1e-5)
        assert measured.metrics["first_online_accuracy"] == pytest.approx(float(by_task[0, i]), rel=1e-5)
        assert {
            "test_accuracy",
            "dead_units",
            "effective_rank",
            "weight_norm",
            "linear_error",
        } <= measured.metrics.keys()
        assert measured.arrays["dead_units"].shape == (4,)
    assert not any(measured.arrays for measured in learning.measured(arrays=False))
    learning._measure(3, learning.stream.task(3))
    right = [float((draw_task(PERMUTED, POOL, seed, 3).test_y == 1).float().mean()) for seed in (0, 1)]
    assert learning.accuracies["test"][3].tolist() == pytest.approx(right)
