"""Real processes are killed, at every kind of moment; what they began ends bit for bit as if they had lived."""

import multiprocessing
import os
import random
import re
import shlex
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.processes import catches, living, mortal, wait_for
from tests.lab.tiny import ROOT, heard, make, plain, results, run
from tests.other_process import started

pytestmark = pytest.mark.forks

READY = ["racecar_lab.running.engines.vmap", "racecar_lab.experiments", "torch._dynamo", "tests.lab.processes"]
A, AA = 9, 3
"""Steps of the stages."""
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def processes():
    """Forks of a process that has imported torch but never used it: each costs a moment only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        patch.setenv("OMP_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(READY)
        yield context


@pytest.fixture
def live(tmp_path):
    """(jobs, engine, moment of death, resume) → exit code, steps done; in the folder "out"."""

    def live(jobs, engine="here", *moment, resume=True):
        log = tmp_path / "steps"
        before = log.stat().st_size if log.exists() else 0
        given = (jobs, tmp_path / "out", engine, log, *(moment or ("any", 0)), resume)
        one = started(mortal, *given)
        one.join(60)
        return one.exitcode, log.stat().st_size - before

    return live


CHAINS = {
    "here": ("here", "RR", [0], {"norm": True, "dropout": 0.2, "ema": 0.8, "valid": 0.2, "every": 2}),
    "here, sgd": ("here", "Ort", [0], {"optimiser": "sgd", "schedule": "cosine", "clip": 0.5}),
    "vmap": ("vmap", "RR", [0, 1], {"norm": True, "schedule": "cosine", "valid": 0.2, "every": 2, "finetune": 0}),
}


@pytest.mark.parametrize("name", CHAINS)
def test_killed_again_and_again(name, live, tmp_path):
    """The moments between deaths change, so that steps, half-written files and gaps between files have their turn."""
    engine, variant, seeds, config = CHAINS[name]
    jobs = make([variant], seeds, **config)
    assert run(jobs, tmp_path / "whole", engine) == []
    whole, deaths, done, code = results(tmp_path / "whole"), 0, 0, None
    while code != 0:
        code, steps = live(jobs, engine, "any", 12 + deaths % 5)  # to finish a stage from its checkpoint takes ten
        assert code in (0, KILLED)
        done, deaths = done + steps, deaths + (code != 0)
        assert deaths < 30, "it never gets on"
    assert deaths >= 3
    assert plain(results(tmp_path / "out")) == plain(whole)
    together = len(jobs) if engine == "vmap" else 1
    assert done <= sum(one["steps"] for one in whole.values()) // together + deaths  # each death may cost one step
    assert not list((tmp_path / "out" / "checkpoints").glob("*.pt"))


def test_killed_while_the_nets_of_a_batch_are_written(live, tmp_path):
    """vmap: none is trained again because another one is in the store already."""
    jobs = make(["RR"], [0, 1, 2], finetune=0)
    run(jobs, tmp_path / "whole", "vmap")
    assert live(jobs, "vmap", "record", 2) == (KILLED, A)
    assert len(results(tmp_path / "out")) == 1
    code, steps = live(jobs, "vmap")
    assert code == 0
    assert steps <= 1
    assert plain(results(tmp_path / "out")) == plain(results(tmp_path / "whole"))


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_pretraining_is_not_done_twice(engine, live, tmp_path):
    jobs = make(["Pre"], finetune=0)
    run(jobs, tmp_path / "whole", engine)
    pretraining = 2 * 3 * 3  # epochs, layers, batches
    assert live(jobs, engine, "step", pretraining + 5) == (KILLED, pretraining + 5)
    code, steps = live(jobs, engine)
    assert code == 0
    assert plain(results(tmp_path / "out")) == plain(results(tmp_path / "whole"))
    assert steps == A - 4


@pytest.mark.parametrize("engine", ["here", "vmap"])
@pytest.mark.parametrize("resume", [True, False])
def test_pretraining_goes_on_with_the_layer_that_was_cut(resume, engine, live, tmp_path):
    """Two nets, killed in the second layer of the second one; `here` has finished the first by then."""
    jobs = make(["Pre"], [0, 1], finetune=0)
    run(jobs, tmp_path / "whole", engine)
    layer, layers, whole = 2 * 3, 3, {"here": 2 * A, "vmap": A}[engine]
    finished = layers * layer + A if engine == "here" else 0
    death = (finished or layers * layer) + layer + 4
    assert live(jobs, engine, "step", death) == (KILLED, death)
    kept = (death - finished - 4 if resume else 0) + finished
    left = 2 * layers * layer + whole - kept
    code, steps = live(jobs, engine, resume=resume)
    assert (code, steps) == (0, left)
    assert plain(results(tmp_path / "out")) == plain(results(tmp_path / "whole"))
    assert not list((tmp_path / "out" / "checkpoints").glob("*.pt"))


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_without_resume_an_unfinished_stage_starts_anew(engine, live, tmp_path):
    jobs = make(["WD"])
    run(jobs, tmp_path / "whole", engine)
    assert live(jobs, engine, "step", A + 2) == (KILLED, A + 2)
    assert len(results(tmp_path / "out")) == 1
    assert live(jobs, engine, resume=False) == (0, 2 * AA)  # all of AA again, but what is finished stays
    assert plain(results(tmp_path / "out")) == plain(results(tmp_path / "whole"))
    assert live(jobs, engine, resume=False) == (0, 0)


# The command

SLOW = ("run", "slow", "--variants", "RR", "--checkpoint-every", "0")
HOW = {"two": ("--workers", "2"), "one": ("--workers", "1"), "vmap": ("--engine", "vmap")}
ENDS = {
    signal.SIGINT: (130, "racecar: interrupted; run the same command again\n"),
    signal.SIGTERM: (143, "racecar: terminated; run the same command again\n"),
    signal.SIGKILL: (KILLED, ""),
}
"""Status, and what is said."""


def interrupt(processes, folder, how, signum, alone, when):
    """A command is sent a signal, for itself alone or for its workers too as a terminal does it, so many seconds after
    it listens; None: when a worker has finished a stage, and they train on. Returns what came of it, and what should
    have."""
    out, said = folder / "out", folder / "said"
    folder.mkdir()
    size = ("--seeds", "2", "--set", "finetune=3") if when is None else ("--seeds", "3", "--set", "epochs=900")
    given = (*SLOW, "--out", str(out), *size, *HOW[how])
    one = processes.Process(target=heard, args=(said, *given))
    one.start()
    try:
        assert wait_for(lambda: catches(one.pid, signal.SIGTERM))
        if when is None:
            assert wait_for(lambda: list(out.glob("records/*.json")), 60)
            assert wait_for(lambda: list(out.glob("checkpoints/*.pt")))
            assert len(living(session=one.pid)) >= 3
        else:
            time.sleep(when)
        (os.kill if alone else os.killpg)(one.pid, signum)
        one.join(15)
        left = not wait_for(lambda: not living(session=one.pid), 5.0)
    finally:
        for pid in living(session=one.pid):  # whatever became of them
            os.kill(pid, signal.SIGKILL)
        one.join()
    begun = f"what was finished is in {out}; to go on: {shlex.join(['racecar', *given])} --resume"
    text = re.sub(r"^\d+ of \d+ stages.*\n", "", said.read_text(), flags=re.MULTILINE)  # progress, every few seconds
    return (one.exitcode, text.replace(begun, "run the same command again"), left), (*ENDS[signum], False)


def drawn():
    """Moments from the first import to the first steps, and two of three ways to work, others every time."""
    for how in random.sample(("two", "one", "vmap"), 2):
        yield how, random.choice([signal.SIGINT, signal.SIGTERM]), random.choice([True, False]), random.uniform(0, 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.soak
def test_nobody_works_on_when_the_command_is_gone(processes, tmp_path):
    """At any moment: it ends soon, in one line, with the status that shells know, and nobody works on. What is left is
    done in the end, and is what it would have been."""
    at_work = [("two", signal.SIGINT, False, None), ("two", signal.SIGKILL, True, None)]
    cases = [*at_work, *drawn()]
    with ThreadPoolExecutor(4) as four:  # they mostly sleep
        ends = list(four.map(lambda n: interrupt(processes, tmp_path / str(n), *cases[n]), range(len(cases))))
    assert {case: got for case, (got, _) in zip(cases, ends, strict=True)} == {
        case: due for case, (_, due) in zip(cases, ends, strict=True)
    }
    jobs = make(["RR"], [0, 1], finetune=3)
    assert run(jobs, tmp_path / "whole") == []
    for number in range(len(at_work)):
        out = tmp_path / str(number) / "out"
        begun = {path: path.stat().st_mtime_ns for path in out.glob("records/*.json")}
        assert 1 <= len(begun) < 6
        assert run(jobs, out) == []
        assert plain(results(out)) == plain(results(tmp_path / "whole"))
        assert all(path.stat().st_mtime_ns == then for path, then in begun.items())
