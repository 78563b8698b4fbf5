"""Simulated smoke: made once, checked by what was written beside it, and by PhiFlow where that is installed."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from racecar_lab.datasets import MNIST, SMOKE, Checked, DataError, check, make
from racecar_lab.datasets import plumes as simulation
from racecar_lab.datasets.smoke import NAME, checksum
from tests.lab.smoke_data import discs, write_simulated


@pytest.fixture
def source():
    """Two plumes of three frames, which a moment makes."""
    return replace(SMOKE, counts={"all": 6}, make=lambda path: write_simulated(path, 2, 3, 8))


def test_it_is_checked_by_what_was_written_beside_it(source, tmp_path):
    assert make(source, tmp_path)
    known = hashlib.sha256((tmp_path / NAME).read_bytes()).hexdigest()
    assert (tmp_path / f"{NAME}.sha256").read_text() == f"{known}  {NAME}\n"
    assert check(source, tmp_path) == Checked((), (f"made here, sha256:{known}",))
    assert checksum(tmp_path) == f"sha256:{known}"
    assert not make(source, tmp_path)
    frames, labels = source.load(tmp_path, "all")
    assert torch.equal(frames, torch.from_numpy(discs(2, 3, 8)).flatten(0, 1).unsqueeze(1))
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_another_file_in_its_place_is_seen_and_made_again(source, tmp_path):
    make(source, tmp_path)
    before = checksum(tmp_path)
    write_simulated(tmp_path / NAME, 3, 2, 8)
    assert checksum(tmp_path) != before
    (problem,) = check(source, tmp_path).problems
    assert "is damaged or another file" in problem
    assert problem.endswith(f"racecar data make smoke --data {tmp_path}")
    assert make(source, tmp_path)
    assert checksum(tmp_path) == before
    (tmp_path / f"{NAME}.sha256").unlink()
    assert check(source, tmp_path) == Checked((), (f"{NAME} has no checksum beside it",))


def test_what_is_not_made_says_where_it_comes_from(tmp_path):
    with pytest.raises(DataError, match="mnist is not made: racecar data fetch mnist"):
        make(MNIST, tmp_path)
    with pytest.raises(DataError, match=f"racecar data make smoke --data {tmp_path}"):
        SMOKE.load(tmp_path, "all")
    np.savez(tmp_path / NAME, density=np.zeros((2, 8, 8)))
    with pytest.raises(DataError, match="instead of plumes × frames in bytes: racecar data make smoke"):
        SMOKE.load(tmp_path, "all")


def test_plumes_differ_and_depend_on_the_seed_alone():
    first, again, other = simulation.draw(20), simulation.draw(20), simulation.draw(20, seed=simulation.SEED + 1)
    for name, (low, high) in simulation.RANGES.items():
        assert len(set(first[name].tolist())) == 20
        assert low <= first[name].min() <= first[name].max() <= high
        assert (first[name] == again[name]).all()
        assert not (first[name] == other[name]).any()


@pytest.mark.filterwarnings("ignore")
def test_smoke_rises(tmp_path):
    """By PhiFlow itself: seeded, upward, at most as dense as what flows in."""
    pytest.importorskip("phi.flow")
    simulation.write(tmp_path / "one.npz", 2, 6, 16, show=False)
    simulation.write(tmp_path / "two.npz", 2, 6, 16, show=False)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz") as simulated:
        density = simulated["density"].astype(float)
    assert density.shape == (2, 6, 16, 16)
    heights = (density.sum(3) * np.arange(16)).sum(2) / density.sum((2, 3))  # rows count downwards
    assert (heights[:, -1] < heights[:, 0]).all()
    assert (density.sum((2, 3))[:, -1] > density.sum((2, 3))[:, 0]).all()
