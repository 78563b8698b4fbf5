"""One training on two real processes, as torchrun starts them, is the training of one."""

import os
import signal
import socket
import subprocess
import sys

import pytest
import torch

from racecar.lab.running.results import Store
from racecar.lab.training import distributed
from tests.lab.tiny import ROOT, living, make, results, run, wait_for

SETTING = {
    "scales": ("sum", "mean"), "epochs": 1, "batch": 6, "valid": 0.2, "clip": 0.5, "every": 2,
    "raises": (1,), "infinite": (2,),
}  # fmt: skip
"""Seed 1 cannot be measured, which one process does for both; seed 2 diverges in the other's half of a batch."""


def torchrun(folder, *arguments):
    """``racecar run`` on two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    return subprocess.Popen(
        [*launcher, "-m", "tests.lab.tiny", "run", *arguments, f"--out={folder}"],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Folder, output and errors of two processes."""
    folder = tmp_path_factory.mktemp("two")
    settings = [f"{name}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in SETTING.items()]
    arguments = ["--variants=Std,Ort,RR", "--seeds=3", "--tensorboard", *(f"--set={one}" for one in settings)]
    process = torchrun(folder, "tiny", *arguments)
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends the two with it
        out, err = process.communicate()
        err += "the processes waited for each other"
    return folder, out, err


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process comes to."""
    folder = tmp_path_factory.mktemp("one")
    assert len(run(make(["Std", "Ort", "RR"], [0, 1, 2], **SETTING), folder)) == 6
    return results(folder)


def test_they_end(shared):
    _, _, err = shared
    assert "waited for each other" not in err
    failed = [line for line in err.splitlines() if " failed: " in line]
    why = "failed: RuntimeError: this one cannot be measured"
    assert failed == [f"racecar: tiny {name} seed 1 {why}" for name in ("Std", "Ort 0.1", "RR 0.3") * 2]


def test_two_processes_come_to_what_one_comes_to(shared, alone):
    two = results(shared[0])
    assert len(alone) == 2 * 3 * 2 * 3
    assert two.keys() == alone.keys()
    for id, one in alone.items():
        assert (two[id]["status"], two[id]["note"]) == (one["status"], one["note"])
        torch.testing.assert_close(two[id]["weights"], one["weights"], rtol=1e-4, atol=1e-5)
        assert two[id]["metrics"] == pytest.approx(one["metrics"], rel=1e-4)
    assert {one["status"] for one in alone.values() if one["seed"] == 2} == {"diverged"}


def test_curves_are_of_the_whole_batch(shared, alone):
    two = results(shared[0])
    for id, one in alone.items():
        for name, values in one["curves"].items():
            assert two[id]["curves"][name] == pytest.approx(values, rel=1e-4, abs=1e-6), (one["variant"], name)


def test_one_process_writes_and_speaks(shared, alone):
    folder, out, err = shared
    assert out.count("results:") == 1
    assert err.count("jobs failed") >= 1
    logs = list(folder.glob("tensorboard/*"))
    assert len(logs) >= len(alone)
    assert {len(list(one.iterdir())) for one in logs} == {1}
    assert {one.record["made"]["engine"] for one in Store(folder).runs()} == {"here"}


@pytest.mark.slow
def test_they_die_with_their_launcher_and_one_goes_on(tmp_path):
    arguments = ["--variants=RR", "--seeds=1", "--checkpoint-every=0", "--set=scales=mean"]
    launcher = torchrun(tmp_path / "two", "slow", *arguments)
    assert wait_for(lambda: list(tmp_path.glob("two/checkpoints/*.pt")))
    pids = living(parent=launcher.pid)
    assert len(pids) == 2
    launcher.kill()
    launcher.communicate()
    try:
        assert wait_for(lambda: not pids & living(), 5.0)
    finally:
        for pid in pids & living():
            os.kill(pid, signal.SIGKILL)
    assert list(tmp_path.glob("two/checkpoints/*.pt"))
    for folder in ("two", "one"):
        run(make(["RR"], scales=("mean",)), tmp_path / folder)
    two, one = results(tmp_path / "two"), results(tmp_path / "one")
    for id, wanted in one.items():
        torch.testing.assert_close(two[id]["weights"], wanted["weights"], rtol=1e-4, atol=1e-5)


def test_a_batch_that_cannot_be_shared_is_named(monkeypatch):
    monkeypatch.setattr(distributed, "world", lambda: 2)
    with pytest.raises(ValueError, match="a batch of 7 cannot be shared by 2 processes: choose a multiple of it"):
        distributed.share(torch.arange(7))
