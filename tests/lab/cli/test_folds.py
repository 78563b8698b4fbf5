"""An experiment of folds from the command line: its search chooses for each, and a run takes that and shows them as
one."""

import json
from dataclasses import replace

import pytest

from racecar_lab.running.results import Store
from tests.lab.cli.commands import records, rows
from tests.lab.experiments.texture_cases import TEXTURE, write

SMALL = (
    "texture-shape", "--quick", "--set", "size=8", "--set", "images=64", "--set", "widths=6,8,8", "--engine", "vmap",
    "--variants", "Std,RR", "--data", "data", "--other-data",
)  # fmt: skip


@pytest.mark.soak
def test_search_and_run(cli, tmp_path, monkeypatch):
    small = replace(TEXTURE.search, lrs={"adam": (1e-3, 1e-1)}, weights={"RR": (0.1,)}, seeds=1)
    monkeypatch.setattr(type(TEXTURE), "search", small)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data", monkeypatch)
    result = cli("search", *SMALL, "--out", "out")
    assert (result.status, result.err) == (0, "")
    tuned = json.loads((Store("out").folder / "tuned.json").read_text())["variants"]
    scores = {}
    for one in records("out"):
        assert set(one["metrics"]) == {"valid_accuracy"}
        if one["stage"] == "AA":
            key = one["variant"], str(one["config"]["fold"])
            scores.setdefault(key, {})[one["tuned"]["lr"]] = one["metrics"]["valid_accuracy"]
    assert len(scores) == 10
    for (name, fold), tried in scores.items():
        own = tuned[name]["each"][fold]
        assert own["score"] == tried[own["lr"]] == max(tried.values())
        assert f"{name}, fold {fold}: lr {own['lr']:.3g}" in result.out

    used = cli("run", *SMALL, "--set", "slim=1", "--seeds", "1", "--tuned", "out/tuned.json", "--out", "run")
    assert (used.status, used.err) == (0, "")
    assert {(row["stage"], row["variant"], row["tuned"], row["runs"]) for row in rows(used.out)} == {
        (stage, name, "for each fold", "5") for stage in ("A", "AA") for name in ("Std", "RR")
    }
    for one in records("run"):
        own = tuned[one["variant"]]["each"][str(one["config"]["fold"])]
        assert one["tuned"] == {key: own[key] for key in ("lr", "weight") if key in own}
    again = cli("run", *SMALL, "--set", "slim=1", "--seeds", "1", "--tuned", "out/tuned.json", "--out", "run")
    assert again.err == "20 of 20 stages are there already\n"
