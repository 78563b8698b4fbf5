"""How far an engine is, for a log: plain lines, now and then, of long work alone."""

import re
from types import SimpleNamespace

import pytest

from racecar.support.progress import INTERVAL
from racecar_lab.running import runner
from racecar_lab.running.bars import bars
from racecar_lab.running.engines.base import RunOptions
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from tests.lab.tiny import Tiny, TinyConfig


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("racecar.support.progress.time.monotonic", lambda: now[0])
    return now


def test_lines(clock, capsys):
    with bars(3) as progress:
        progress("job", "A", 10, 40, "loss 1")
        progress("job", "A", -1, -1, "")
        assert capsys.readouterr().err == ""
        clock[0] += INTERVAL
        progress("job", "AA", 20, 40, "loss 0.5")
        progress("job", "AA", 30, 40, "")
        clock[0] += INTERVAL
        progress("job", "AA", -1, -1, "")
    assert capsys.readouterr().err.splitlines() == ["1 of 3 stages; job AA: 20 of 40 steps, loss 0.5", "2 of 3 stages"]


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_a_long_epoch_is_heard_of(engine, tmp_path, monkeypatch, capsys):
    """Before it ends: here somebody looks at the clock once in a second, at most once in a step."""
    now = [0.0]

    def tick():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("racecar.support.progress.time", SimpleNamespace(monotonic=tick))
    jobs = make_jobs(Tiny(), TinyConfig(epochs=1, finetune=0, batch=1), ["Std"], [0], None)
    assert runner.run(jobs, RunOptions(folder=tmp_path, maker=Maker("test", engine), workers=1), engine) == []
    said = [line for line in capsys.readouterr().err.splitlines() if "steps" in line]
    steps = [int(re.search(r"A: (\d+) of 26 steps", line)[1]) for line in said]
    assert len(steps) > 2
    assert steps == sorted(set(steps))
