"""Runs from the command line without data, trained and measured once for all tests."""

import shutil

import pytest

from racecar_lab.experiments import experiment, information
from racecar_lab.search_space import Search
from tests.command_line import cli, refused, undrawn
from tests.lab.cli.commands import PEAKS

__all__ = ["cli", "refused", "undrawn"]


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """Nothing here needs data from elsewhere."""
    monkeypatch.setenv("RACECAR_DATA", str(tmp_path / "nothing"))


@pytest.fixture(scope="session")
def known():
    """What `information` measured first, by the name of the function."""
    return {}


@pytest.fixture
def measured_once(monkeypatch, known):
    """What `information` measures is not looked at here, and takes longer than to train: one net's for all."""

    def kept(name):
        measure = getattr(information, name)

        def call(*given, **more):
            if name not in known:
                known[name] = measure(*given, **more)
            return known[name]

        return call

    monkeypatch.setattr(information, "SWEEP", (30,))
    for name in ("plane", "invertibility"):
        monkeypatch.setattr(information, name, kept(name))


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """What `ran` leaves, for those who ask for it later: a folder, and what was said."""
    return tmp_path_factory.mktemp("trained") / "out", []


@pytest.fixture
def ran(cli, trained, tmp_path):
    """Peaks, two variants and two seeds; trained once, and copied with the times of its files."""
    folder, said = trained
    if said:
        shutil.copytree(folder, tmp_path / "out")
        return said[0]
    result = cli(*PEAKS, "--variants", "Std,RR", "--seeds", "2")
    assert (result.status, result.err) == (0, "")
    shutil.copytree(tmp_path / "out", folder)
    said.append(result)
    return result


@pytest.fixture
def search(monkeypatch):
    """Two settings for each variant, one seed."""
    small = Search(lrs={"adam": (1e-3, 1e-2)}, weights={"RR": (0.1,)}, stages=("AA", "AB"), seeds=1)
    monkeypatch.setattr(type(experiment("information")), "search", small)
    return small
