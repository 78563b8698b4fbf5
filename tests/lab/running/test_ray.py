"""A Ray cluster on this machine: first one whose command is terminated, in a folder that no worker may import from;
then one that goes on and does much else, and whose command is killed."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest
import torch

from racecar.lab.running.results import Store
from tests.lab import toy
from tests.lab.tiny import ROOT, STEPS, Slow, hostile_folder, make, plain, results, run, started, wait_for

EPOCHS = 3
A = 3 * EPOCHS
"""Steps of a stage."""
SOME = ("Std", "Ort", "WD", "Drop")
"""Beside RR and Pre: what a variant does is the same in every worker."""
SHARED = {"finetune": EPOCHS, "valid": 0.2, "batch": 6, "every": 2}
SCRIPT = "from tests.lab.tiny import command\nif __name__ == '__main__':\n    command()\n"


def begun(out):
    return list(out.glob("checkpoints/????????????????.pt"))


def at_work(log):
    return list(started(log).values()).count("ray::_work")


def end(process, log):
    """Whatever became of a command and what it started."""
    process.kill()
    for pid in started(log):  # Ray's own servants take their time
        os.kill(pid, signal.SIGKILL)


def terminate_a_command(folder):
    """``racecar run`` with two workers, as soon as one of them is in its second stage: Ray's workers would import from
    the current folder first, and Ray takes SIGTERM for itself. Returns the steps that the checkpoints of the two hold,
    which have no folder in common with the command."""
    out, log, script = folder / "out", folder / "terminated", folder / "racecar"
    here = hostile_folder(folder)
    given = ["run", "slow", "--out", str(out), "--variants", "RR,Pre", "--seeds", "1", "--engine", "ray"]
    given += ["--workers", "2", "--checkpoint-every", "0", *(f"--set={name}={value}" for name, value in SHARED.items())]
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", STEPS: str(log)}
    one = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), *given],
        cwd=here, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert wait_for(lambda: list(out.glob("records/*.json")), 60)
        assert wait_for(lambda: len(begun(out)) == 2)
        assert at_work(log) == 2
        one.terminate()
        said = one.communicate(timeout=20)[1]
        assert wait_for(lambda: not started(log), 20)  # nobody works on
    finally:
        end(one, log)
        one.wait()
    again = f"racecar {' '.join(given)} --resume"
    assert said.splitlines()[-1] == f"racecar: terminated; what was finished is in {out}; to go on: {again}"
    assert one.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    assert not (folder / "run").exists(), (folder / "run").read_text()
    return [torch.load(path)["step"] for path in begun(out)]


def work(jobs, endless, out, log, told):
    """In a process of its own: do some jobs and tell what failed, then others by the same cluster."""
    import ray

    os.environ[STEPS] = str(log)
    torch.set_num_threads(1)
    ray.shutdown = lambda: None
    failures = run(jobs, out, "ray", workers=2)
    told.with_name("half").write_text(json.dumps([[one.job, one.message, one.details] for one in failures]))
    told.with_name("half").rename(told)
    run(endless, out.with_name("endless"), "ray", workers=2, interval=0.0)


def killed_at_work(jobs, folder):
    """Do jobs, and then some without an end until the process that waits for them is killed. Returns what failed, and
    how many steps the jobs took."""
    out, log, told = folder / "out", folder / "steps", folder / "told.json"
    endless = make(["RR"], [0, 1], Slow(), epochs=900)
    one = multiprocessing.get_context("spawn").Process(target=work, args=(jobs, endless, out, log, told))
    one.start()
    try:
        assert wait_for(told.exists, 120)
        steps = log.stat().st_size
        failures = json.loads(told.read_text())
        assert wait_for(lambda: len(begun(folder / "endless")) == 2)
        assert at_work(log) == 2
        one.kill()
        one.join()
        assert wait_for(lambda: not at_work(log), 10)  # nobody works on
    finally:
        end(one, log)
        one.join()
    return failures, steps


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # ray's own, and those of what it imports
def test_ray(tmp_path, monkeypatch):
    """In one test, because a cluster takes its time to start: there are two."""
    pytest.importorskip("ray")
    out = tmp_path / "out"
    kept = terminate_a_command(tmp_path)
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
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    failures, steps = killed_at_work([bad, mortal, broken, *cut, *many, *turns], tmp_path)

    # The numbers are those of one process, bit for bit: of stages in one go, of those that were cut, and of the
    # job that lost a worker and went on with another.
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
    messages = {job: message for job, message, _ in failures}
    unread = f"{path} is no checkpoint that can be read; delete it to start that stage again"
    assert messages == {
        "tiny RR 0.3 seed 5": "RuntimeError: this one cannot be measured",
        "tiny RR 0.3 seed 7": f"ValueError: {unread}",
    }
    assert any("here is why" in details for *_, details in failures)
    assert list(path.parent.iterdir()) == [path]
