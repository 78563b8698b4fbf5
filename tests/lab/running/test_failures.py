"""What happens when something goes wrong in one of many jobs."""

import multiprocessing

import pytest

from racecar_lab.running.engines.pool import _drain
from tests.lab.tiny import make, plain, results, run


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_a_failing_job_does_not_stop_the_others(engine, tmp_path):
    made = make(["Std"], [0, 1, 2], raises=(0,), finetune=0)
    (failure,) = run(made, tmp_path, engine)
    assert failure.job == "tiny Std seed 0"
    assert failure.message == "RuntimeError: this one cannot be measured"
    assert "here is why" in failure.details
    found = results(tmp_path)
    assert {one["seed"]: one["stage"] for one in found.values()} == {1: "A", 2: "A"}
    assert len(run(made, tmp_path, engine)) == 1  # it alone is tried again
    assert plain(results(tmp_path)) == plain(found)


@pytest.mark.timeout(120)
def test_a_worker_is_killed(tmp_path):
    """While it says something, of all moments. Another job fails by itself, two are finished and stay so."""
    made = make(["RR"], [0, 1, 2, 3], folder=tmp_path, kills=(1,), raises=(2,))
    failures = {failure.job: failure.message for failure in run(made, tmp_path, workers=2)}
    assert failures == {
        "tiny RR 0.3 seed 1": "a worker process was killed; run the same command again to go on",
        "tiny RR 0.3 seed 2": "RuntimeError: this one cannot be measured",
    }
    found = results(tmp_path)
    stages = sorted((one["seed"], one["stage"]) for one in found.values())
    assert stages == [(0, "A"), (0, "AA"), (0, "AB"), (1, "A"), (3, "A"), (3, "AA"), (3, "AB")]
    good = [job for job in made if job.seed in (0, 3)]
    assert run(good, tmp_path / "one") == []
    for id, one in results(tmp_path / "one").items():
        assert plain(one) == plain(found[id])  # two workers and one: bit for bit


def test_a_warning_of_a_worker_is_one_of_its_parent():
    theirs, mine = multiprocessing.Pipe()
    seen = []
    mine.send(("a checkpoint was not written",))
    mine.send(("job", "A", 1, 2, "note"))
    mine.close()
    with pytest.warns(UserWarning, match="a checkpoint was not written"):
        _drain(theirs, lambda *message: seen.append(message))
    assert seen == [("job", "A", 1, 2, "note")]
