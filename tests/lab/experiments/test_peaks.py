"""The peak set: where its peaks are, what its scribbles do, and how it is split."""

import numpy as np
import pytest
import torch

from racecar_lab.datasets import peaks
from racecar_lab.experiments import experiment

PEAKS = experiment("peaks")
SEEDS = (0, 1, 2, 1000)


def test_the_peaks_alone():
    first, second = peaks.peaks().numpy()
    for picture, half in ((first, slice(0, 14)), (second, slice(14, 28))):
        row, column = np.unravel_index(picture.argmax(), picture.shape)
        assert picture.max() == 1
        assert row in range(28)[half]
        assert column in range(28)[half]
        assert picture[half, half].sum() > 0.95 * picture.sum()  # the whole peak is in its quarter
    assert (first * second).sum() / np.sqrt((first**2).sum() * (second**2).sum()) < 0.05  # two features, not one


@pytest.mark.parametrize("seed", SEEDS)
def test_the_set(seed):
    x, y = (one.numpy() for one in peaks.load(seed))
    assert x.shape == (110, 1, 28, 28)
    assert x.dtype == np.float32
    assert (y == 0).sum() == (y == 1).sum() == 55
    assert x.min() >= 0
    assert x.max() == 255
    assert np.isfinite(x).all()
    means = [x[y == label].mean((0, 1)) for label in (0, 1)]
    difference = means[0] - means[1]
    corner = [np.unravel_index(one.argmax(), one.shape) for one in (difference, -difference)]
    assert max(corner[0]) < 14 <= min(corner[1])  # 0: top-left, 1: bottom-right
    # Every picture holds its own peak whole, and not the other one.
    for picture, label in zip(x[:, 0] / 255, y, strict=True):
        own, other = peaks.peaks().numpy()[[label, 1 - label]]
        assert (picture >= own - 1e-6).all()
        assert not (picture >= other - 1e-6).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_scribbles(seed):
    """A connected line over each peak, another one in every picture; the peak is what the pictures share."""
    x, y = (one.numpy() for one in peaks.load(seed))
    own = peaks.peaks().numpy()[y]
    ink = x[:, 0] / 255 - own > 1e-3
    seen = [one for one, peak in zip(ink, own, strict=True) if peak[one].max(initial=0) < 0.4]  # none of it hidden
    counts = ink.sum((1, 2))
    assert counts.max() <= peaks.STROKE
    assert np.median(counts) > peaks.STROKE / 3
    assert len({one.tobytes() for one in ink}) == 110
    where = ink.mean(0)
    assert where.max() < 0.5  # no pixel is in most of the scribbles
    assert (where > 0).mean() > 0.9  # and they go nearly everywhere
    added = (x[:, 0] / 255 - own)[ink & (own < 1 - peaks.INK)]
    assert np.allclose(added, peaks.INK, atol=1e-5)
    assert seen
    for one in seen:
        assert connected(one)


def connected(mask):
    """Whether all pixels of a mask hang together, over corners too."""
    left = {tuple(place) for place in np.argwhere(mask)}
    stack = [left.pop()]
    while stack:
        row, column = stack.pop()
        beside = {(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
        left -= beside
        stack += beside
    return not left


def test_seeds():
    state = torch.get_rng_state()
    x = peaks.load(3)[0]
    assert torch.get_rng_state().equal(state)  # nobody else's random numbers are touched
    assert x.equal(peaks.load(3)[0])
    assert not x.equal(peaks.load(4)[0])
    torch.manual_seed(99)
    peaks.load(3)[0].zero_()  # what is handed out is nobody else's
    assert x.equal(peaks.load(3)[0])


def test_split():
    task = PEAKS.data(PEAKS.Config(), 7, None)["A"]
    assert (len(task.train), len(task.test), task.valid) == (100, 10, None)
    assert task.train.y.bincount().tolist() == [50, 50]
    assert task.test.y.bincount().tolist() == [5, 5]
    x, y = peaks.load(7)
    assert torch.cat((task.train.x, task.test.x)).equal(x)
    assert torch.cat((task.train.y, task.test.y)).equal(y)
