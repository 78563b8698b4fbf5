"""Runs in which something goes wrong: it is named, and what was finished stays."""

import json
import random
import re
import shutil

import pytest
import torch
from torch.utils._pytree import tree_leaves

from racecar_lab.experiment import Measured
from racecar_lab.experiments import experiment
from racecar_lab.running.results import Store
from tests.lab.cli.commands import ONE, PEAKS, records, rows
from tests.lab.tiny import plain, results

pytestmark = pytest.mark.usefixtures("no_data")


def test_a_checkpoint_that_is_not_used_is_named(cli, monkeypatch):
    arguments = [*PEAKS, *ONE, "--checkpoint-every", "0"]
    (path,) = interrupted(cli, monkeypatch, *arguments)
    assert cli(*arguments, "--resume", "--set", "lr=1").err == ""
    result = cli(*arguments)
    assert result.err == f"note: begun before, and started anew for want of --resume: {path}\n"
    assert cli(*arguments).err == "1 of 1 stages are there already\n"


def interrupted(cli, monkeypatch, *arguments):
    """Run a command that is interrupted when all is trained; the files that it can go on from."""

    def interrupt(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(experiment("peaks")), "measure", interrupt)
        assert cli(*arguments).status == 130
    return sorted((Store("out").folder / "checkpoints").iterdir())


def flips(path):
    """Bits of a file: the sign of a weight in it, and some anywhere."""
    weights = next(one for one in tree_leaves(torch.load(path)) if isinstance(one, torch.Tensor) and one.dim() > 1)
    sign = 8 * (path.read_bytes().index(weights.contiguous().numpy().tobytes()) + 3) + 7
    return [sign, *(random.Random(0).randrange(8 * path.stat().st_size) for _ in range(2))]


@pytest.mark.parametrize("engine, variant", [("vmap", "RR"), ("here", "Pre")])
def test_a_damaged_checkpoint_is_named_and_its_stage_starts_again(cli, monkeypatch, engine, variant, tmp_path):
    """One flipped bit, anywhere: the result is that of a run that nobody interrupted, bit for bit."""
    more = ("--variants", variant, "--seeds", "1", "--engine", engine, "--checkpoint-every", "0", "--set", "epochs=5")
    arguments = (*PEAKS, *more, "--weight", "Pre=1") if variant == "Pre" else (*PEAKS, *more)
    path, *others = interrupted(cli, monkeypatch, *arguments)  # of Pre: that of the pretraining comes first
    for one in others:
        one.unlink()
    content, bits = path.read_bytes(), flips(path)
    assert cli(*arguments, "--out", "whole").status == 0
    whole = plain(results(tmp_path / "whole"))
    for bit in bits:
        shutil.rmtree("out")
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.parent.mkdir(parents=True)
        path.write_bytes(damaged)
        result = cli(*arguments, "--resume")
        assert (result.status, len(result.err.splitlines())) == (0, 1)
        assert f"{path} is damaged" in result.err
        assert plain(results(tmp_path / "out")) == whole
        assert not list(path.parent.iterdir())


def test_out_of_memory(cli, monkeypatch):
    def fails(self, config, trained):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(type(experiment("peaks")), "measure", fails)
    result = cli(*PEAKS, *ONE)
    assert result.status == 2
    assert "peaks Std seed 0 failed: out of memory in stage A: try --workers 1" in result.err.splitlines()[0]


def test_a_metric_that_is_no_number(cli, monkeypatch):
    """One of two seeds: nothing is lost, and the table has the mean of what there is."""

    def measure(self, config, trained):
        return Measured({"good": 0.5, "bad": float("nan") if trained.seed else 2.0}, arrays=trained.history)

    monkeypatch.setattr(type(experiment("peaks")), "measure", measure)
    result = cli(*PEAKS, "--variants", "Std", "--seeds", "2")
    assert result.status == 0
    (row,) = rows(result.out)
    assert (row["runs"], row["good"], row["bad"]) == ("2", "0.500 ± 0.000", "2.000")


def test_diverged(cli, undrawn):
    """Not an error: it is what came of it, and the table and the page say so."""
    wild = ("--set", "optimiser=sgd", "--set", "lr=1e36")
    result = cli(*PEAKS, "--variants", "Std", "--seeds", "2", *wild)
    assert result.status == 0
    (row,) = rows(result.out)
    assert row["runs"] == "2 (2 diverged)"
    assert {one["status"] for one in records("out")} == {"diverged"}
    report = cli("report", "out")
    assert (report.status, report.err) == (0, "")


def test_a_job_that_fails_is_named_and_the_others_are_done(cli, monkeypatch):
    one = experiment("peaks")
    measure = type(one).measure

    def fails(self, config, trained):
        if trained.seed == 0:
            raise KeyError("vectors")
        return measure(self, config, trained)

    with monkeypatch.context() as patch:
        patch.setattr(type(one), "measure", fails)
        result = cli(*PEAKS, "--variants", "Std", "--seeds", "2")
    assert result.status == 2
    assert result.err.splitlines() == [
        "racecar: peaks Std seed 0 failed: KeyError: 'vectors'",
        "racecar: 1 of 2 jobs failed; what was finished is in out",
    ]
    assert [one["seed"] for one in records("out")] == [1]
    assert cli(*PEAKS, "--variants", "Std", "--seeds", "2").err == "1 of 2 stages are there already\n"


def test_interrupted(cli, monkeypatch):
    def interrupt(self, config, trained):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(experiment("peaks")), "measure", interrupt)
    result = cli(*PEAKS, *ONE)
    again = f"racecar {' '.join((*PEAKS, *ONE))} --resume"
    line = f"racecar: interrupted; what was finished is in out; to go on: {again}\n"
    assert (result.status, result.out, result.err) == (130, "", line)


@pytest.mark.parametrize(
    "engine, bad, words", [("here", "{", "is no record"), ("vmap", {"metrics": 3}, "has another type for metrics: 3")]
)
def test_a_broken_record_is_named_and_the_other_jobs_are_done(ran, cli, engine, bad, words):
    path = next(path for path in sorted((Store("out").folder / "records").iterdir()))
    good = json.loads(path.read_text())
    path.write_text(bad if isinstance(bad, str) else json.dumps(good | bad))
    result = cli(*PEAKS, "--variants", "Std,RR", "--seeds", "3", "--engine", engine)
    assert result.status == 2
    first, second, last = result.err.splitlines()
    assert first == "4 of 6 stages are there already"
    job, problem = f"racecar: peaks {good['variant']}.* seed {good['seed']} failed", f"ValueError: {path} {words}"
    assert re.fullmatch(f"{job}: {problem}.*; delete it to train that stage again", second)
    assert last == "racecar: 1 of 6 jobs failed; what was finished is in out"
    assert {row["variant"]: row["runs"] for row in rows(result.out)} == {"Std": "3", "RR": "3"} | {good["variant"]: "2"}
    path.unlink()
    assert cli(*PEAKS, "--variants", "Std,RR", "--seeds", "2").out == ran.out
