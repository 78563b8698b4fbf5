"""``run``, ``sweep`` and ``search`` take the same options, and each of them does what it says."""

import json
import re

import pytest

from racecar_lab.running.results import Store
from tests.lab.cli.commands import INFORMATION, ONE, PEAKS, records
from tests.lab.experiments.pictures import write_task

pytestmark = pytest.mark.usefixtures("no_data", "measured_once")

OWN = {"run": set(), "sweep": {"--over"}, "search": {"--lr"}}
"""What a command has for itself."""


def test_commands_share_their_options(cli):
    found = {name: set(re.findall(r"^  (--[a-z-]+)", cli(name, "--help").out, re.MULTILINE)) for name in OWN}
    shared = set.intersection(*found.values())
    assert {name: some - shared for name, some in found.items()} == OWN
    assert {"--weight", "--tensorboard", "--cuda-graphs", "--compile", "--checkpoint-every", "--resume"} <= shared


def test_sweep_writes_tensorboard(cli, tmp_path):
    pytest.importorskip("tensorboard")
    assert cli("sweep", *PEAKS[1:], *ONE, "--over", "lr=1e-4", "--tensorboard").status == 0
    assert list((tmp_path / "out" / "tensorboard").rglob("events*"))


@pytest.mark.parametrize("given, seeds", [((), {1000}), (("--first-seed", "7", "--seeds", "2"), {7, 8})])
def test_search_tries_what_the_user_says(cli, search, given, seeds, tmp_path):
    """Weights, seeds, task and share of the pictures that are held out; the file says so."""
    write_task(tmp_path / "mine.mat")
    data = ("--data", tmp_path / "mine.mat", "--set", "valid=0.25")
    assert cli("search", *INFORMATION, *data, "--variants", "RR", "--weight", "RR=0.2", *given).status == 0
    assert {(one["weight"], one["seed"]) for one in records("out")} == {(0.2, seed) for seed in seeds}
    tuned = json.loads((Store("out").folder / "tuned.json").read_text())
    assert {one["weight"] for one in tuned["variants"]["RR"]["tried"]} == {0.2}
    assert tuned["seeds"] == len(seeds)
    assert (tuned["config"]["source"], tuned["config"]["valid"]) == ("var_u", 0.25)
    assert tuned["config"] == {**records("out")[0]["config"], "lr": 3e-3}
