"""``run``, ``sweep`` and ``search`` take the same options, and each of them does what it says."""

import json
import re

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.running.results import Store
from racecar_lab.search_space import Search

PEAKS = ("peaks", "--quick", "--set", "epochs=1", "--set", "nets=linear", "--workers", "1", "--out", "out")
INFORMATION = ("information", "--set", "epochs=1", "--set", "finetune=1", "--workers", "1", "--out", "out")
OWN = {"run": set(), "sweep": {"--over"}, "search": {"--lr"}}
"""What a command has for itself."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two settings for each variant, one seed; nothing here needs data from elsewhere."""
    monkeypatch.setenv("RACECAR_DATA", "nothing")
    found = Search(lrs={"adam": (1e-3, 1e-2)}, weights={"RR": (0.1,)}, stages=("AA", "AB"), seeds=1)
    monkeypatch.setattr(type(experiment("information")), "search", found)


def records(folder="out"):
    return [run.record for run in Store(folder).runs()]


def test_commands_share_their_options(cli):
    found = {name: set(re.findall(r"^  (--[a-z-]+)", cli(name, "--help").out, re.MULTILINE)) for name in OWN}
    shared = set.intersection(*found.values())
    assert {name: some - shared for name, some in found.items()} == OWN
    assert {"--weight", "--tensorboard", "--cuda-graphs", "--compile", "--checkpoint-every", "--resume"} <= shared


def test_sweep_writes_tensorboard(cli, tmp_path):
    pytest.importorskip("tensorboard")
    assert cli("sweep", *PEAKS, "--variants", "Std", "--seeds", "1", "--over", "lr=1e-4", "--tensorboard").status == 0
    assert list((tmp_path / "out" / "tensorboard").rglob("events*"))


def test_search_tries_the_users_weights_on_the_users_seeds(cli):
    given = ("--variants", "RR", "--weight", "RR=0.2", "--first-seed", "7")
    assert cli("search", *INFORMATION, *given).status == 0
    assert {(one["weight"], one["seed"]) for one in records()} == {(0.2, 7)}
    (tried,) = json.loads((Store("out").folder / "tuned.json").read_text())["variants"].values()
    assert {one["weight"] for one in tried["tried"]} == {0.2}


REFUSED = [
    (("sweep", *PEAKS, "--over", "lr=1e-4", "--cuda-graphs"), "--cuda-graphs goes with --device cuda"),
    (("sweep", *PEAKS, "--over", "lr=1e-4", "--weight", "Std=1"), "Std has no weight"),
    (("sweep", *PEAKS, "--over", "weight=1", "--weight", "RR=2"), "RR"),  # which of the two?
    (("search", *INFORMATION, "--variants", "RR", "--engine", "vmap", "--compile"), "does not compile"),
    (("search", *INFORMATION, "--variants", "RR", "--weight", "Ort=1"), "Ort is not run"),
]


@pytest.mark.parametrize("arguments, words", REFUSED, ids=[" ".join(a[-2:]) for a, _ in REFUSED])
def test_refused(refused, arguments, words, tmp_path):
    """Before anything is trained or written."""
    assert words in refused(*arguments)
    assert not (tmp_path / "out").exists()
