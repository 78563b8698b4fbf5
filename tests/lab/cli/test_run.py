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
    for row in rows(ran.out):
        some = [one["metrics"] for one in found if one["variant"] == row["variant"]]
        assert row["runs"] == "2"
        assert row["stage"] == "A"
        assert row["weight"] == ("5e-07" if row["variant"] == "RR" else "")
        for metric in ("test_accuracy", "cosine_1", "cosine_2", "carried", "ssim"):
            values = [one[metric] for one in some]
            assert row[metric] == f"{mean(values):.3f} ± {stdev(values):.3f}"


def test_the_table_fits_and_explains_itself(ran, cli):
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "weight: λ for RR." in lines
    assert "stage: A, trained from fresh weights." in lines
    assert any(line.startswith("Mean ± standard deviation") for line in lines)
    assert not any(line.startswith("verdict: ") for line in lines), "a quick run is no evidence"
    swept = cli(
        "sweep",
        *PEAKS[1:],
        "--over",
        "lr=1e-4,1e-3",
        "--set",
        "precision=bfloat16",
        "--variants",
        "Std",
        "--seeds",
        "1",
        "--set",
        "weight=0.000000123456789",
        "--set",
        "momentum=0.123456789",
    )
    assert max(map(len, swept.out.splitlines())) <= 100


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


@pytest.mark.parametrize(
    "more", [("--set", "lr=1e-3"), ("--set", "beta=0.2"), ("--weight", "RR=1e-6"), ("--variants", "Ort")], ids=str
)
def test_what_is_changed_is_run(ran, cli, more):
    assert cli(*PEAKS, "--variants", "RR", "--seeds", "1", *more).err == ""
    assert len(records("out")) == 5


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


def test_several_weights(cli):
    result = cli(*PEAKS, "--variants", "RR,Ort", "--seeds", "1", "--weight", "RR=1e-6, 1e-7")
    assert [(row["variant"], row["weight"]) for row in rows(result.out)] == [
        ("RR", "1e-06"),
        ("RR", "1e-07"),
        ("Ort", "0.1"),
    ]


@pytest.mark.parametrize(
    "more", [("--variants", "Std,Std"), ("--variants", "RR", "--weight", "RR=1e-6,1e-6")], ids=["variant", "λ"]
)
def test_what_is_named_twice_counts_once(cli, more):
    """Two runs of one seed would be called two runs, with a spread of 0."""
    (row,) = rows(cli(*PEAKS, "--seeds", "1", *more).out)
    assert row["runs"] == "1"
    assert "±" not in row["cosine_1"]
