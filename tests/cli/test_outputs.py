"""Output paths are checked by a real write before the work; a disk that fills up later is reported with its path."""

import errno
import os
from pathlib import Path

import pytest
import torch

from racecar.support.files import DiskFull, write_atomically
from tests.lab.tiny import make, plain, results, run

PEAKS = ("peaks", "--quick", "--variants", "Std", "--seeds", "1", "--workers", "1")
BENCH = ("bench", "--device", "cpu", "--rounds", "1", "--fractions", "1")
CASES = {
    "run": (("run", *PEAKS, "--out"), "racecar_lab.running.runner.run"),
    "sweep": (("sweep", *PEAKS, "--over", "lr=1e-4", "--out"), "racecar_lab.running.runner.run"),
    "search": (("search", "information", "--quick", "--variants", "Std", "--out"), "racecar_lab.running.runner.run"),
    "bench": ((*BENCH, "--models", "mlp", "--out"), "racecar.bench.run.run"),
    "inspect": (("inspect", "nets:flat", "--input", "1,64", "--out"), "racecar.cli.inspect.looks.looks"),
    "data fetch": (("data", "fetch", "mnist", "--data"), "racecar_lab.datasets.download._complete"),
    "data make": (("data", "make", "smoke", "--data"), "racecar_lab.datasets.plumes.write"),
    "film": (("film", "nothing", "--out"), "racecar_lab.experiments.smoke.film.film"),
    "report": (("report",), "racecar_lab.report.write.read_runs"),
}


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def full_for(name, monkeypatch):
    """Files with this in their path find no space."""
    place = os.replace

    def replace(source, target):
        return full() if name in str(target) else place(source, target)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("why", ["no folder can be made", "full"])
def test_before_the_work(case, why, refused, monkeypatch, tmp_path):
    """An output that cannot be written is refused before any work is done."""
    (given, work), worked = CASES[case], []
    monkeypatch.setattr(work, lambda *_, **__: worked.append(case))
    if why == "full":
        place = tmp_path / "out"
        monkeypatch.setattr(os, "fsync", full)
    else:
        place = Path("/proc/sys/out")  # where even root can make none
    if case in ("report", "pack"):
        place = tmp_path / "there" if why == "full" else place.parent
        place.mkdir(exist_ok=True)
        before = list(place.iterdir())
    line = refused(*given, str(place / "name" if given[0] in ("bench", "film") else place))
    assert ("No space left" if why == "full" else "cannot be written") in line
    assert str(place) in line
    assert not worked
    assert list(place.iterdir()) == before if case in ("report", "pack") else not place.exists()


def test_the_table_of_a_benchmark_is_printed_all_the_same(cli, monkeypatch, tmp_path):
    full_for("bench.json", monkeypatch)
    result = cli(*BENCH, "--models", "nets:flat", "--input", "4,64", "--out", "bench.json")
    assert result.status == 2
    assert "racecar" in result.out
    assert "without an optimiser" in result.out
    assert "note: the record so far was not written, and the work goes on: No space left for bench.json" in result.err
    assert result.err.splitlines()[-1].startswith("racecar: No space left for bench.json: the disk is full")


def test_torch_does_not_hide_a_full_disk(tmp_path):
    refused = pytest.raises(DiskFull, match="No space left for .*state.pt")
    with open("/dev/full", "wb", buffering=0) as disk, refused, write_atomically(tmp_path / "state.pt"):
        torch.save({"state": torch.zeros(1000)}, disk)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_a_checkpoint_that_is_not_written(engine, tmp_path, monkeypatch):
    """It is a warning, and the results are the same."""
    jobs = make(["Pre"], [0, 1], finetune=0)
    assert run(jobs, tmp_path / "good", engine) == []
    full_for("checkpoints", monkeypatch)
    with pytest.warns(UserWarning, match="checkpoint was not written, and the work goes on: No space left for"):
        assert run(jobs, tmp_path / "full", engine, interval=0.0) == []
    assert plain(results(tmp_path / "full")) == plain(results(tmp_path / "good"))


def test_a_record_that_is_not_written(tmp_path, monkeypatch):
    (job,) = make(["Std"], finetune=0)
    full_for("records", monkeypatch)
    (failure,) = run([job], tmp_path)
    path = tmp_path / "records" / f"{job.ids['A']}.json"
    assert failure.message.startswith(f"DiskFull: No space left for {path}: the disk is full")
