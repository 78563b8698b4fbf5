"""racecar data list | check | fetch | make: tables, statuses, and what is said when something is wrong."""

import gzip
import shlex
import struct
import sys
from dataclasses import replace

import pytest

from racecar_lab.datasets import MNIST, SMOKE, SOURCES, DataError
from tests.lab.smoke_data import write_simulated


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with a tiny MNIST, which has no published checksums."""
    forms = tuple(tuple(replace(file, size=None, checksum="") for file in form) for form in MNIST.forms)
    monkeypatch.setitem(SOURCES, "mnist", replace(MNIST, counts={"train": 2, "test": 1}, forms=forms))
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, n in (("train", 2), ("t10k", 1)):
        images = struct.pack(">4I", 0x803, n, 28, 28) + bytes(n * 784)
        (raw / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (raw / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">2I", 0x801, n) + bytes(n)))
    return tmp_path / "data"


def row(out: str, name: str) -> list[str]:
    """Cells of a table's row."""
    (line,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
    return [cell for cell in line.split("  ") if cell]


def test_list(cli, folder):
    result = cli("data", "list", "--data", folder)
    assert result.status == 0
    assert [row(result.out, name)[0] for name in SOURCES] == list(SOURCES)
    mnist, shift = row(result.out, "mnist"), row(result.out, "shift")
    assert [cell.strip() for cell in mnist[2:]] == ["CC BY-SA 3.0", "12 MB", "yes", "yes"]
    assert [cell.strip() for cell in shift[-2:]] == ["no", "no"]
    assert result.out.endswith(f"Data folder: {folder}\n")


def test_the_folder_may_come_from_the_environment(cli, folder, monkeypatch):
    monkeypatch.setenv("RACECAR_DATA", str(folder))
    assert row(cli("data", "list").out, "mnist")[-1].strip() == "yes"


def test_check_looks_at_what_is_here(cli, folder):
    result = cli("data", "check", "--data", folder)
    assert (result.status, result.err) == (0, "")
    assert row(result.out, "mnist")[1].strip() == "good"
    assert row(result.out, "cifar10")[1].strip() == "not here"


@pytest.mark.parametrize("names", [(), ("mnist",)])
def test_check_of_a_folder_that_is_not_there(refused, tmp_path, names):
    line = refused("data", "check", *names, "--data", tmp_path / "nowhere")
    assert f"there is no data folder {tmp_path / 'nowhere'}" in line


def test_what_to_type_is_quoted(cli, folder):
    spaced = folder.rename(folder.parent / "my data")
    (spaced / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    command = cli("data", "check", "mnist", "--data", spaced).err.partition("missing: ")[2]
    assert shlex.split(command) == ["racecar", "data", "fetch", "mnist", "--data", str(spaced)]


def test_check_names_what_is_wrong(cli, folder):
    damaged = folder / "MNIST/raw/train-images-idx3-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    (folder / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    result = cli("data", "check", "--data", folder)
    assert result.status == 2
    assert row(result.out, "mnist")[1].strip() == "wrong"
    first, second = result.err.splitlines()
    assert first.startswith(f"racecar: {damaged} is damaged or no idx file")
    assert second == (
        f"racecar: {folder}/MNIST/raw/t10k-labels-idx1-ubyte.gz is missing: racecar data fetch mnist --data {folder}"
    )


def test_a_data_set_that_is_asked_for_must_be_here(cli, folder):
    result = cli("data", "check", "mnist", "smoke-real", "--data", folder)
    assert result.status == 2
    assert row(result.out, "mnist")[1].strip() == "good"
    assert result.err.startswith(f"racecar: smoke-real is not in {folder} (looked for smoke_real_64.npz)")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "fetch", "make"])
def test_an_unknown_name_is_refused_at_once(refused, folder, command):
    said = refused("data", command, "mnist", "cifar", "--data", folder)
    assert said.startswith("racecar: unknown data set 'cifar': did you mean cifar10")


def test_fetch_goes_on_after_a_failure(cli, folder, monkeypatch):
    """What is here is not fetched; what cannot be fetched, or fails, is named, and the next one has its turn."""

    def fail(urls, target, size, checksum):
        raise DataError(f"{target} could not be fetched: {urls[0]} answered 404 Not Found")

    monkeypatch.setattr("racecar_lab.datasets.fetching.download", fail)
    result = cli("data", "fetch", "information", "cifar10", "mnist", "--data", folder)
    assert result.status == 2
    assert result.out.startswith(f"mnist was already in {folder}; CC BY-SA 3.0; LeCun")
    first, second = result.err.splitlines()
    assert first.startswith("racecar: information cannot be fetched: its licence does not let us pass it on")
    assert second.startswith(
        f"racecar: {folder}/cifar-10-binary.tar.gz could not be fetched: https://www.cs.toronto.edu"
    )


def test_fetch_needs_a_name(refused, folder):
    assert "NAME" in refused("data", "fetch")


def test_make_does_it_once(cli, folder, monkeypatch):
    made = replace(SMOKE, counts={"all": 6}, make=lambda path: write_simulated(path, 2, 3, 8))
    monkeypatch.setitem(SOURCES, "smoke", made)
    assert row(cli("data", "list", "--data", folder).out, "smoke")[-2].strip() == "made"
    for said in ("made in", "was already in"):
        result = cli("data", "make", "smoke", "--data", folder)
        assert (result.status, result.err) == (0, "")
        assert result.out.startswith(f"smoke {said} {folder}")
    assert cli("data", "check", "smoke", "--data", folder).status == 0


def test_without_phiflow_the_extra_is_named(refused, tmp_path, monkeypatch):
    for name in ("phi", "phi.flow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoPhi, *sys.meta_path])
    line = refused("data", "make", "smoke", "--data", tmp_path / "data")
    assert "pip install 'racecar-training[smoke]'" in line
    assert not (tmp_path / "data").exists()


class NoPhi:
    """As if PhiFlow were not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "phi":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
