"""Where workers come from."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from racecar_lab.running.engines import processes
from racecar_lab.running.engines.pool import _drain
from tests.lab.processes import living, wait_for
from tests.lab.tiny import STEPS, Slow, make, run


@pytest.mark.parametrize(
    "given, environment, forked",
    [
        (("here", "cpu", 2), {}, True),
        (("here", "cpu", 1), {}, False),
        (("here", "cuda", 2), {}, False),
        (("vmap", "cpu", 0), {}, False),
        (("here", "cpu", 2), {"WORLD_SIZE": "2"}, False),
    ],
)
def test_where_workers_come_from(given, environment, forked, monkeypatch):
    monkeypatch.setattr(processes, "_warm", False)
    assert processes.context("cpu").get_start_method() == "spawn"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    processes.warm_up(*given)
    assert processes.context("cpu").get_start_method() == ("forkserver" if forked else "spawn")
    assert processes.context("cuda").get_start_method() == "spawn"


def test_the_environment_is_as_it_is_now(tmp_path, monkeypatch):
    """Not as it was when the process was started that workers are forked from."""
    monkeypatch.setattr(processes, "_warm", processes._warm)
    processes.warm_up("here", "cpu", 2)
    jobs = make(["Std"], [0, 1], Slow(), epochs=1, finetune=0)
    assert run(jobs, tmp_path / "before", workers=2) == []
    monkeypatch.setenv(STEPS, str(tmp_path / "steps"))
    assert run(jobs, tmp_path / "out", workers=2) == []
    assert (tmp_path / "steps").stat().st_size > 0


def test_the_path_is_left_alone(monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with processes._same_path():
        assert "PYTHONPATH" in processes.os.environ
    assert "PYTHONPATH" not in processes.os.environ


@pytest.mark.timeout(60)
def test_nothing_that_was_forked_is_left_behind(monkeypatch):
    """Nor a worker that nobody was told of: it would complain that all is gone."""
    monkeypatch.setattr(processes, "_warm", False)
    processes.warm_up("here", "cpu", 2)
    worker = processes.context("cpu").Process(target=time.sleep, args=(100,))
    worker.start()
    server = processes._server()
    assert {worker.pid, server} <= living()
    processes.end_fork_server()
    assert wait_for(lambda: not {worker.pid, server} & living(), 5)


def kill_server():
    pid = processes._server()
    os.kill(pid, signal.SIGKILL)
    return wait_for(processes.fork_server_lost)


@pytest.mark.soak
@pytest.mark.timeout(60)
def test_a_fork_server_that_is_gone_is_reported(tmp_path, monkeypatch):
    """Before there is a worker, and while they work, who then end although nobody can wait for them any more."""
    monkeypatch.setattr(processes, "_warm", False)
    processes.warm_up("here", "cpu", 2)
    monkeypatch.setenv(STEPS, str(tmp_path / "steps"))
    jobs = make(["Std"], [0, 1], Slow(), epochs=900, finetune=0)

    def at_work():
        assert wait_for((tmp_path / "steps").exists)
        kill_server()

    killer = threading.Thread(target=at_work)
    killer.start()
    failures = run(jobs, tmp_path / "out", workers=2)
    killer.join()
    gone = "the process that workers are forked from was killed by signal 9"
    assert {failure.message for failure in failures} == {f"{gone}; run the same command again to go on"}
    assert len(failures) == 2
    steps = (tmp_path / "steps").stat().st_size
    time.sleep(0.3)
    assert (tmp_path / "steps").stat().st_size == steps
    with pytest.raises(ChildProcessError, match=f"{gone}; run the same command again, or with --workers 1"):
        run(jobs, tmp_path / "out", workers=2)


def test_a_warning_of_a_worker_is_one_of_its_parent():
    theirs, mine = multiprocessing.Pipe()
    seen = []
    mine.send(("a checkpoint was not written",))
    mine.send(("job", "A", 1, 2, "note"))
    mine.close()
    with pytest.warns(UserWarning, match="a checkpoint was not written"):
        _drain(theirs, lambda *message: seen.append(message))
    assert seen == [("job", "A", 1, 2, "note")]
