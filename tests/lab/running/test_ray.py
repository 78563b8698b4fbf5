"""A Ray cluster on this machine: first one whose command is killed, then one that goes on and does much else."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from racecar.lab.running.results import Store
from tests.lab import toy
from tests.lab.tiny import ROOT, STEPS, Slow, make, plain, results, run, started, wait_for

EPOCHS = 3
A = 3 * EPOCHS
"""Steps of a stage."""
SOME = ("Std", "Ort", "WD", "Drop")
"""Beside RR and Pre: what a variant does is the same in every worker."""
SHARED = {"finetune": EPOCHS, "valid": 0.2, "batch": 6, "every": 2}


def kill_a_command(folder, log):
    """``racecar run`` with two workers, as soon as one of them is in its second stage. Returns the steps that the
    checkpoints of the two hold, which have no folder in common with the command."""
    given = ["run", "slow", "--out", str(folder), "--variants", "RR,Pre", "--seeds", "1", "--engine", "ray"]
    given += ["--workers", "2", "--checkpoint-every", "0", *(f"--set={name}={value}" for name, value in SHARED.items())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", STEPS: str(log)}
    one = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "tests.lab.tiny", *given], cwd=ROOT, env=environment)

    def begun():
        return list(folder.glob("checkpoints/????????????????.pt"))

    try:
        assert wait_for(lambda: list(folder.glob("records/*.json")), 60)
        assert wait_for(lambda: len(begun()) == 2)
        assert list(started(log).values()).count("ray::_work") == 2
        one.kill()
        one.wait()
        assert wait_for(lambda: "ray::_work" not in started(log).values(), 10)  # nobody works on
    finally:
        one.kill()
        one.wait()
        for pid in started(log):  # Ray's own servants take their time
            os.kill(pid, signal.SIGKILL)
    return [torch.load(path)["step"] for path in begun()]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # ray's own, and those of what it imports
def test_ray(tmp_path, monkeypatch):
    """In one test, because a cluster takes its time to start."""
    pytest.importorskip("ray")
    out, log = tmp_path / "out", tmp_path / "steps"
    kept = kill_a_command(out, tmp_path / "killed")
    finished = len(list(out.glob("records/*.json")))
    cut = make(["RR", "Pre"], [0], Slow(), **SHARED)
    many = make(SOME, [0], **SHARED, clip=0.5, schedule="cosine")
    done = [job for job in many if job.variant == "Std"]
    (bad,) = make(["RR"], [5], raises=(5,))
    (mortal,) = make(["RR"], [6], folder=tmp_path, dies=(6,))
    (broken,) = make(["RR"], [7])
    path = Store(out).checkpoint(broken.ids["A"])
    path.write_bytes(b"nothing")
    turns = toy.jobs(norm=True)
    for job in turns:  # a GAN, between two turns
        assert len(toy.cut([job], out, toy.LOSSES[job.variant])) == 1
    assert run(done, out) == []
    monkeypatch.setenv(STEPS, str(log))
    failures = run([bad, mortal, broken, *cut, *many, *turns], out, "ray", workers=2)

    # The numbers are those of one process, bit for bit: of stages in one go, of those that were cut by the kill, and of
    # the job that lost a worker and went on with another.
    steps = log.stat().st_size
    assert run([mortal, *cut, *many, *turns], tmp_path / "here") == []
    found = results(out)
    assert (tmp_path / "dead").exists()
    assert len(found) == 3 + 6 + len(SOME) * 3 + 4
    assert plain(found) == plain(results(tmp_path / "here"))

    # What was done is not done again.
    assert 1 <= finished < 6
    assert min(kept) >= 1
    assert steps == A * (6 - finished) - sum(kept)
    engines = {(one.variant, one.record["made"]["engine"]) for one in Store(out).runs()}
    assert {name for name, engine in engines if engine == "here"} == {"Std"}

    # A job that fails does not stop the others, and files have the names that the user knows, not the worker's.
    messages = {failure.job: failure.message for failure in failures}
    unread = f"{path} is no checkpoint that can be read; delete it to start that stage again"
    assert messages == {
        "tiny RR 0.3 seed 5": "RuntimeError: this one cannot be measured",
        "tiny RR 0.3 seed 7": f"ValueError: {unread}",
    }
    assert any("here is why" in failure.details for failure in failures)
    assert list(path.parent.iterdir()) == [path]
