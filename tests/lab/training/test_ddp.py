"""A training on two processes that torchrun's agent starts equals the training in one process."""

import os
import signal
import sys
import warnings

import pytest
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from racecar_lab.running.results import Store
from racecar_lab.training import distributed
from tests.lab import toy
from tests.lab.pair import SETTING, both
from tests.lab.processes import living, wait_for
from tests.lab.tiny import make, plain, results, run
from tests.other_process import started


def launch(folder, out, err):
    """Start processes as torchrun does, but forked, so that they need not import everything again."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))  # not pytest's
    warnings.simplefilter("default")
    config = LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", start_method="fork")
    elastic_launch(config, both)(folder)


@pytest.mark.slow
@pytest.mark.forks
@pytest.mark.timeout(180)
@pytest.mark.soak
def test_two_processes(tmp_path):
    """Everything that tests.lab.pair does, in one test, because processes start slowly."""
    for name in ("first", "second"):
        folder = tmp_path / name
        out, err = folder / "out", folder / "err"
        folder.mkdir()
        one = started(launch, folder, out, err, daemon=False)
        if begun(one, folder) or out.read_text():
            break
        end(one)  # the agent forks beside its threads: a lock that one of them holds just then is never free
    try:
        assert begun(one, folder), f"the processes waited for each other\n{err.read_text()}"
        assert one.is_alive(), err.read_text()
        said = out.read_text(), err.read_text()
        they_die_with_their_launcher(one)
    finally:
        one.terminate()  # it ends the two with it
        one.join()
    one_goes_on(folder)
    two_come_to_what_one_comes_to(folder)
    one_process_writes_and_speaks(folder / "two", *said)
    networks_take_turns(folder / "turns")


def begun(launcher, folder):
    """True if the processes train, or have failed already."""
    return wait_for(lambda: not launcher.is_alive() or list(folder.glob("cut/checkpoints/*.pt")), 45)


def end(launcher):
    """Wait for the processes, and kill those that do not respond. Returns True if all ended by themselves."""
    pids = living(parent=launcher.pid)
    launcher.kill()
    launcher.join()
    ended = wait_for(lambda: not pids & living(), 5.0)
    for pid in pids & living():
        os.kill(pid, signal.SIGKILL)
    return ended


def they_die_with_their_launcher(launcher):
    assert len(living(parent=launcher.pid)) == 2
    assert end(launcher)


def one_goes_on(folder):
    """Continue the interrupted training."""
    assert list(folder.glob("cut/checkpoints/*.pt"))
    for name in ("cut", "uncut"):
        run(make(["RR"], scales=("mean",)), folder / name)
    cut, uncut = results(folder / "cut"), results(folder / "uncut")
    for id, wanted in uncut.items():
        torch.testing.assert_close(cut[id]["weights"], wanted["weights"], rtol=1e-4, atol=1e-5)


def two_come_to_what_one_comes_to(folder):
    """Curves are those of the whole batch, not of one process's part."""
    assert len(run(make(["Std", "Ort", "RR"], [0, 1, 2], **SETTING), folder / "one")) == 6
    alone, two = results(folder / "one"), results(folder / "two")
    assert len(alone) == 2 * 3 * 2 * 3
    assert two.keys() == alone.keys()
    for id, one in alone.items():
        assert (two[id]["status"], two[id]["note"]) == (one["status"], one["note"])
        torch.testing.assert_close(two[id]["weights"], one["weights"], rtol=1e-4, atol=1e-5)
        assert two[id]["metrics"] == pytest.approx(one["metrics"], rel=1e-4)
        for name, values in one["curves"].items():
            assert two[id]["curves"][name] == pytest.approx(values, rel=1e-4, abs=1e-6), (one["variant"], name)
    assert {one["status"] for one in alone.values() if one["seed"] == 2} == {"diverged"}


def one_process_writes_and_speaks(folder, out, err):
    failed = [line for line in err.splitlines() if " failed: " in line]
    why = "failed: RuntimeError: this one cannot be measured"
    assert failed == [f"racecar: tiny {name} seed 1 {why}" for name in ("Std", "Ort 0.1", "RR 0.3") * 2]
    assert out.count("results:") == 1
    assert "6 of 18 jobs failed" in err
    logs = list(folder.glob("tensorboard/*"))
    assert len(logs) >= 2 * 3 * 2 * 3
    assert {len(list(one.iterdir())) for one in logs} == {1}
    assert {one.record["made"]["engine"] for one in Store(folder).runs()} == {"here"}


def networks_take_turns(folder):
    """The resumed training equals the uninterrupted one bit for bit, and that of one process up to rounding. Curves do
    not: the part of a point from before the checkpoint is that of the process that saved it."""
    assert run(toy.jobs(), folder / "one") == []
    parts, two, one = (results(folder / name) for name in ("parts", "whole", "one"))
    assert two.keys() == one.keys()
    for id, found in two.items():
        for what in ("weights", "arrays", "metrics"):
            assert plain(parts[id][what]) == plain(found[what])
        torch.testing.assert_close(found["weights"], one[id]["weights"], rtol=1e-3, atol=1e-5)
        assert found["curves"].keys() == one[id]["curves"].keys()


def test_a_batch_that_cannot_be_shared_is_named(monkeypatch):
    monkeypatch.setattr(distributed, "world", lambda: 2)
    with pytest.raises(ValueError, match="a batch of 7 cannot be shared by 2 processes: choose a multiple of it"):
        distributed.share(torch.arange(7))
