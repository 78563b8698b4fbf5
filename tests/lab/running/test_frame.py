"""``Store.frame``: every run of a store as a row, for those who go on with pandas."""

import json
import math
import sys
from pathlib import Path

import pytest

from racecar import MissingExtra
from racecar_lab.running.results import Store
from tests.lab.report.records import peaks_records, record, write

HEAD = ["id", "experiment", "variant", "stage", "seed", "weight", "status", "purpose"]


@pytest.fixture
def store(tmp_path):
    """Two experiments, runs that diverged, one that a search tuned, one of ``--quick``."""
    tuned = {"lr": 0.5, "weight": 0.2}
    others = [
        record("RR", 7, {"m": 0.5}, weight=0.2, tuned=tuned, config={"lr": 1e-3, "few": [1, 2]}, experiment="other"),
        record("Std", 8, {"m": None}, purpose="quick", config={"lr": 1e-3, "few": []}, experiment="other"),
    ]
    return Store(write(tmp_path / "out", [*peaks_records(2), *others]))


def test_rows_hold_what_the_files_say(store):
    rows = [run.row for run in store.runs()]
    files = {path.stem: json.loads(path.read_text()) for path in store.folder.glob("records/*.json")}
    assert sorted(row["id"] for row in rows) == sorted(files)
    for row in rows:
        one = files[row["id"]]
        assert {name: row[name] for name in HEAD[:-1]} == {name: one[name] for name in HEAD[:-1]}
        assert row["purpose"] == one["purpose"]
        config = {**one["config"], **{k: v for k, v in one["tuned"].items() if k != "weight"}}
        assert {name: row[f"config.{name}"] for name in config} == {
            name: tuple(value) if isinstance(value, list) else value for name, value in config.items()
        }
        metrics = {f"metrics.{name}": value for name, value in one["metrics"].items() if value is not None}
        assert row == {name: row[name] for name in (*HEAD, *(f"config.{name}" for name in config), *metrics)} | metrics
        hash(tuple(row.values()))  # so that rows can be grouped by any of them


def test_the_frame_is_its_rows(store):
    pandas = pytest.importorskip("pandas")
    frame, runs = store.frame(), store.runs()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns[: len(HEAD)]) == HEAD
    kinds = [name.partition(".")[0] * ("." in name) for name in frame.columns]
    assert kinds == sorted(kinds, key=["", "config", "metrics"].index)
    for run, (_, found) in zip(runs, frame.iterrows(), strict=True):
        there = {name: value for name, value in found.items() if isinstance(value, tuple) or not pandas.isna(value)}
        assert there == {name: value for name, value in run.row.items() if value is not None}
    groups = frame[frame.experiment == "peaks"].groupby(["config.net", "stage", "variant"])
    for (net, stage, variant), mean in groups["metrics.test_accuracy"].mean().items():
        some = [run for run in runs if (run.config.get("net"), run.stage, run.variant) == (net, stage, variant)]
        values = [run.metrics["test_accuracy"] for run in some if "test_accuracy" in run.metrics]
        assert math.isclose(mean, sum(values) / len(values))


def test_an_empty_folder_is_an_empty_frame(tmp_path):
    pytest.importorskip("pandas")
    assert Store(tmp_path).frame().empty


def test_a_record_that_cannot_be_read_is_no_gap(store):
    next(Path(store.folder, "records").iterdir()).write_text("")
    with pytest.raises(ValueError, match="delete it to train that stage again"):
        store.frame()


def test_without_pandas(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"^this needs pandas: pip install 'racecar-training\[pandas\]'$"):
        store.frame()
