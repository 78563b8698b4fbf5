"""``racecar run``: what is trained, kept, skipped and said, on very small settings."""

import shlex
from statistics import mean, stdev

import pytest
import torch

from racecar_lab.cli import summary
from racecar_lab.running.run import Run
from tests.lab.cli.commands import ONE, PEAKS, records, rows

pytestmark = pytest.mark.usefixtures("no_data")


def test_small_errors_are_told():
    metrics = [{"large": 0.5, "small": 1e-4, "none": 0.0}, {"large": 0.7, "small": 3e-4, "none": 0.0}]
    some = [Run({"metrics": one, "status": "finished"}) for one in metrics]
    found = [summary._value(some, name) for name in ("large", "small", "none", "missing")]
    assert found == ["0.600 ± 0.141", "0.0002 ± 0.00014", "0.000 ± 0.000", "-"]


def test_run(ran, cli):
    found = records("out")
    assert {(one["variant"], one["seed"]) for one in found} == {(v, s) for v in ("Std", "RR") for s in (0, 1)}
    assert {one["status"] for one in found} == {"finished"}
    assert {one["config"]["epochs"] for one in found} == {2}
    assert {one["config"]["lr"] for one in found} == {4e-4}  # --quick's, which nothing overrides
    assert ran.out.splitlines()[-1] == "results: out   page: racecar report out"
    assert "verdict: " not in ran.out, "a quick run is no evidence"
    for row in rows(ran.out):
        some = [one["metrics"] for one in found if one["variant"] == row["variant"]]
        assert row["runs"] == "2"
        assert row["stage"] == "A"
        assert row["weight"] == ("5e-07" if row["variant"] == "RR" else "")
        for metric in ("test_accuracy", "cosine_1", "cosine_2", "carried", "ssim"):
            values = [one[metric] for one in some]
            assert row[metric] == f"{mean(values):.3f} ± {stdev(values):.3f}"


def test_commands_can_be_pasted(cli):
    result = cli(*PEAKS[:-1], "my out", *ONE)
    command = result.out.splitlines()[-1].partition("page: ")[2]
    assert shlex.split(command) == ["racecar", "report", "my out"]


def test_what_is_there_is_skipped(ran, cli, tmp_path):
    """However it is run: engine, workers, checkpoints and bars do not change a result."""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("out/*/*")}
    same = (*PEAKS, "--variants", "Std,RR", "--seeds", "2")
    for more in ((), ("--engine", "vmap"), ("--checkpoint-every", "0"), ("--resume",), ("--tensorboard",)):
        again = cli(*same, *more)
        assert again.status == 0
        assert again.err == "4 of 4 stages are there already\n"
        assert again.out == ran.out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("out/*/*")} == before


def test_more_seeds_are_added(ran, cli):
    result = cli(*PEAKS, "--variants", "Std,RR", "--seeds", "3")
    assert result.err == "4 of 6 stages are there already\n"
    assert {row["runs"] for row in rows(result.out)} == {"3"}


@pytest.mark.parametrize("command", [("run",), ("sweep", "--over", "beta=0.2")])
def test_seeds_that_begin_later(command, cli):
    result = cli(*command, *PEAKS[1:], "--variants", "Std", "--seeds", "2", "--first-seed", "7")
    assert (result.status, result.err) == (0, "")
    assert {one["seed"] for one in records("out")} == {7, 8}


def test_the_record_says_how_it_was_made(cli):
    arguments = [*PEAKS, *ONE]
    cli(*arguments)
    (one,) = records("out")
    assert one["made"]["command"] == f"racecar {' '.join(arguments)}"
    assert one["made"]["engine"] == "here"
    assert one["made"]["torch"] == torch.__version__
    assert one["made"]["device"].startswith("CPU")
