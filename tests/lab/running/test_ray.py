"""A Ray cluster on this machine, of a command in a folder that no worker may import from: it does much, goes on with
what one process began, is terminated, and one process goes on with what it began."""

import json
import os
import pickle
import signal
import subprocess
import sys

import pytest
import torch

from racecar.support.sealed import write_sealed
from racecar_lab.running.results import Store
from tests.lab import toy
from tests.lab.processes import started, wait_for
from tests.lab.tiny import HOLD, ROOT, STEPS, Slow, Tiny, hostile_folder, make, plain, results, run

EPOCHS = 3
A = 3 * EPOCHS
"""Steps of a stage."""
SHARED = {"finetune": EPOCHS, "valid": 0.2, "batch": 6, "every": 2}
OTHER = {**SHARED, "clip": 0.5, "schedule": "cosine"}
SCRIPT = """
import json, os, pickle
from dataclasses import replace
from pathlib import Path
from racecar_lab.running.engines import ray
from tests.lab.tiny import HOLD, STEPS, command

folder, drive = Path(__file__).parent, ray._drive

def first_others(cluster, jobs, options, progress):
    others = pickle.loads((folder / "others").read_bytes())
    failures = drive(cluster, others, replace(options, resume=True), progress)
    steps = os.path.getsize(os.environ[STEPS])
    (folder / "half").write_text(json.dumps([steps, *([one.job, one.message, one.details] for one in failures)]))
    Path(os.environ[HOLD]).write_text("LAST")
    (folder / "half").rename(folder / "told")
    return drive(cluster, jobs, options, progress)

if __name__ == "__main__":
    ray._drive = first_others
    command()
"""
"""``racecar``, but the cluster that it starts does other jobs before its own, which do not end."""
LAST = A + 4
"""The step at which they are held: both workers must be met at work, however long one of them takes to start."""


class Counted(Tiny):
    """In this process: raises when so many steps are begun."""

    def __init__(self, last=0):
        self.begun, self.last = 0, last

    def loss(self, output, y):
        self.begun += 1
        if self.begun == self.last:
            raise InterruptedError
        return super().loss(output, y)


def checkpoints(out, jobs):
    """Of their unfinished stages: id → steps done."""
    store = Store(out)
    begun = [id for job in jobs for id in job.ids.values() if store.checkpoint(id).exists() and not store.has(id)]
    return {id: torch.load(store.checkpoint(id))["step"] for id in begun}


def cut_here(out):
    """Begin some jobs in this process: RR, with its second stage, and Pre. Returns how many steps are left of them."""
    for variant, last in (("RR", A + 4), ("Pre", 6)):
        jobs = make([variant], [0], Counted(last), **OTHER)
        assert len(run(jobs, out, interval=0.0)) == 1
        assert list(checkpoints(out, jobs).values()) == [last % A - 1]
    return 5 * A - 3 - 5


def terminate(folder, others):
    """``racecar run`` with two workers, which do others' jobs first, as soon as both are in their second stage: Ray's
    workers would import from the current folder first, and Ray takes SIGTERM for itself. Returns the steps that
    were done by others, and their failures."""
    out, log, script = folder / "out", folder / "terminated", folder / "racecar"
    here = hostile_folder(folder)
    given = ["run", "slow", "--out", str(out), "--variants", "RR,Pre", "--seeds", "1", "--engine", "ray"]
    given += ["--workers", "2", "--checkpoint-every", "0", *(f"--set={name}={value}" for name, value in SHARED.items())]
    script.write_text(SCRIPT.replace("LAST", str(LAST)))
    (folder / "others").write_bytes(pickle.dumps(others))
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    environment |= {STEPS: str(log), HOLD: str(folder / "hold")}
    environment["RAY_worker_niceness"] = "0"  # by itself 15: beside other tests its workers would hardly be served
    own = make(["RR", "Pre"], **SHARED)
    held = {job.ids["AA"]: LAST - A - 1 for job in own}
    said = folder / "said"  # no pipe, which would hold the command when it is full
    with said.open("w") as file:
        one = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), *given], cwd=here, env=environment, stderr=file
        )
    try:
        assert wait_for(lambda: one.poll() is not None or (folder / "told").exists(), 360), said.read_text()
        assert one.poll() is None, said.read_text()
        assert wait_for(lambda: checkpoints(out, own) == held, 55), said.read_text()
        assert list(started(log).values()).count("ray::_work") == 2
        one.terminate()
        one.wait(20)
        assert wait_for(lambda: not started(log), 20)  # nobody works on
    finally:
        one.kill()
        for pid in started(log):  # Ray's own servants take their time
            os.kill(pid, signal.SIGKILL)
        one.wait()
    again = f"racecar {' '.join(given)} --resume"
    assert said.read_text().splitlines()[-1] == f"racecar: terminated; what was finished is in {out}; to go on: {again}"
    assert one.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said.read_text()
    assert not (folder / "run").exists(), (folder / "run").read_text()
    steps, *failures = json.loads((folder / "told").read_text())
    return steps, failures


@pytest.mark.soak
@pytest.mark.timeout(550)
@pytest.mark.filterwarnings("ignore")  # ray's own, and those of what it imports
def test_ray(tmp_path):
    """In one test, because a cluster takes its time to start."""
    pytest.importorskip("ray")
    out, whole = tmp_path / "out", tmp_path / "whole"
    left = cut_here(out)
    begun = make(["RR", "Pre"], [0], Slow(), **OTHER)
    done, drop = make(["Std", "Drop"], [0], **OTHER)
    (bad,) = make(["RR"], [5], raises=(5,))
    (mortal,) = make(["RR"], [6], folder=tmp_path, dies=(6,))
    (broken,) = make(["RR"], [7])
    path = Store(out).checkpoint(broken.ids["A"])
    write_sealed(path, {"of": "something else"})
    turns = toy.jobs(norm=True)
    for job in turns:  # a GAN, between two turns
        assert len(toy.cut([job], out, toy.LOSSES[job.variant])) == 1
    assert run([done], out) == []
    steps, failures = terminate(tmp_path, [bad, mortal, broken, *begun, done, drop, *turns])

    # What was done is not done again, neither there nor here; workers and the command have no folder in common.
    assert steps == left
    engines = {(one.variant, one.record["made"]["engine"]) for one in Store(out).runs()}
    assert {name for name, engine in engines if engine == "here"} == {"Std", "RR"}
    path.unlink()
    count = Counted()
    own = make(["RR", "Pre"], [0], count, **SHARED)
    assert [Store(out).has(job.ids["A"]) for job in own] == [True, True]
    assert run(own, out) == []
    assert count.begun == A * 4 - 2 * (LAST - A - 1)

    # The numbers are those of one process, bit for bit: of stages in one go, of those that were cut, and of the
    # job that lost a worker and went on with another.
    uncut = make(["RR", "Pre"], [0], **OTHER) + make(["RR", "Pre"], [0], **SHARED)
    assert run([mortal, *uncut, done, drop, *turns], whole) == []
    found = results(out)
    assert (tmp_path / "dead").exists()
    assert len(found) == 3 * (1 + 4 + 2) + 2 * 2
    assert plain(found) == plain(results(whole))

    # A job that fails does not stop the others, and files have the names that the user knows, not the worker's.
    messages = {job: message for job, message, _ in failures}
    unread = f"{path} is no checkpoint that can be read; delete it to start that stage again"
    assert messages == {
        "tiny RR 0.3 seed 5": "RuntimeError: this one cannot be measured",
        "tiny RR 0.3 seed 7": f"ValueError: {unread}",
    }
    assert any("here is why" in details for *_, details in failures)
    assert list(path.parent.iterdir()) == [Store(out).checkpoint(bad.ids["A"])]
