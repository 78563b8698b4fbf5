"""Where workers come from."""

import pytest

from racecar.lab.engines import processes
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
