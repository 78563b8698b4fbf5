"""Published folders: the same runs as in a file for each, in tables that others can read; damage is seen."""

import csv
import hashlib
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from racecar_lab.report.read_records import read_runs
from racecar_lab.running.published import ARRAYS, DETAILS, MADE, RUNS, SETTINGS, SUMS, write_published
from racecar_lab.running.results import Store
from tests.lab.report.records import record
from tests.lab.tiny import plain

TABLES = {"plane": [{"name": "d1", "i": 1.5}, {"name": "d2", "i": 2.0}], "rows": [{"a": 1}, {"b": 2}], "data": "x"}
RECORDS = [
    record("RR", seed, {"λ": 0.1 * seed, "lost": None}, weight=c, curves={"loss": [1.0, None]}, tables=TABLES,
           tuned={"lr": 1e-3} if c else {}, dead=[] if c else ["conv1"])
    for seed in range(3) for c in (None, 0.5)
]  # fmt: skip
ARRAY = {RECORDS[0]["id"]: {"a/b": torch.tensor([0.1, 0.2]), "c": torch.tensor(3)}}


@pytest.fixture
def folder(tmp_path):
    write_published(tmp_path, RECORDS, ARRAY)
    return tmp_path


def by_text(records):
    return sorted(json.dumps(one, sort_keys=True) for one in records)


def test_all_comes_back(folder):
    store = Store(folder)
    assert by_text(run.record for run in store.runs()) == by_text(RECORDS)
    assert [run.id for run in store.runs()] == sorted(one["id"] for one in RECORDS)
    assert all(store.has(one["id"]) and store.get(one["id"]).record == one for one in RECORDS)
    assert not store.has("0" * 16)
    assert {run.id: plain(run.arrays) for run in store.runs() if run.arrays} == {
        id: plain(some) for id, some in ARRAY.items()
    }


def test_others_can_read_it(folder):
    """With the standard library alone, by the names of the fields; and with sha256sum."""
    with open(folder / RUNS, newline="", encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    with open(folder / SETTINGS, newline="", encoding="utf-8") as file:
        setting = {one["setting"]: one for one in csv.DictReader(file)}
    assert len(runs) == len(RECORDS)
    assert len(setting) == 2
    known = {one["id"]: one for one in RECORDS}
    for one in runs:
        assert float(one["metrics.λ"]) == known[one["id"]]["metrics"]["λ"]
        assert setting[one["setting"]]["config.lr"] == "0.0001"
    assert json.loads((folder / MADE).read_text().splitlines()[0])["commit"] == "abc1234"
    sums = [line.split("  ") for line in (folder / SUMS).read_text().splitlines()]
    assert sums == [[hashlib.sha256((folder / name).read_bytes()).hexdigest(), name] for _, name in sums]


def test_the_same_records_are_the_same_files(folder, tmp_path):
    """In whatever order they come: a difference between two commits is one between runs."""
    write_published(tmp_path / "again", RECORDS[::-1], ARRAY)
    for name in (RUNS, SETTINGS, MADE, DETAILS, ARRAYS, SUMS):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_what_a_run_adds(folder):
    """Beside the published ones; of a run that was trained again, its own record is the newer."""
    store = Store(folder)
    new = {**RECORDS[1], "note": "again"}
    store.write(new, {}, {"c": torch.tensor(4)})
    assert {run.record["note"] for run in store.runs() if run.id == new["id"]} == {"again"}
    assert len(store.runs()) == len(RECORDS)
    assert store.get(new["id"]).arrays["c"] == 4
    store.add_setting(RECORDS[0]["id"], RECORDS[0]["config"], {"lr": 9.0}, "", "racecar run peaks")
    assert [run.record["tuned"] for run in store.runs() if run.id == RECORDS[0]["id"]] == [{"lr": 9.0}, {}]


def test_one_run_under_two_settings(tmp_path):
    some = [RECORDS[0], {**RECORDS[0], "tuned": {"lr": 1e-4}}]
    write_published(tmp_path, some, {})
    assert by_text(run.record for run in Store(tmp_path).runs()) == by_text(some)


@pytest.mark.parametrize("name", [RUNS, SETTINGS, MADE, DETAILS, ARRAYS, SUMS])
def test_damage_is_seen(folder, name):
    """One other byte: nothing is read from the folder, and it is said which file it is."""
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match="damaged") as error:
        _ = [run.arrays for run in Store(folder).runs()]
    assert str(folder) in str(error.value)
    if name != ARRAYS:
        with pytest.raises(ValueError, match="no record can be read"):
            read_runs(folder)


@pytest.mark.parametrize("name", [SETTINGS, SUMS])
def test_a_file_that_is_missing(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match="get its files again, or publish it again"):
        Store(folder).runs()


def test_killed_while_it_is_published(folder, monkeypatch):
    """Files that do not belong together are not read."""
    import os

    place = os.replace

    def die(source, target):
        if str(target).endswith(SUMS):
            raise KeyboardInterrupt
        place(source, target)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write_published(folder, RECORDS[:2], {})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="publish it again"):
        Store(folder).runs()
    write_published(folder, RECORDS[:2], {})
    assert len(Store(folder).runs()) == 2


names = st.text(alphabet='ab.λ\u2028, "\n', min_size=1, max_size=3)
words = names | st.sampled_from(["null", "1", "NaN", "1e5", "[", '"', "", "true"])
leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False) | words
parts = st.dictionaries(names, leaves | st.lists(leaves, max_size=2) | st.dictionaries(names, leaves, max_size=1))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(parts, parts, words), min_size=1, max_size=6))
def test_any_records(tmp_path_factory, given):
    """They come back as they were, the kinds of their numbers (1, 1.0, true) and texts like numbers included."""
    folder = tmp_path_factory.mktemp("records")
    some = [
        record("RR", seed, config=config, tables=tables, note=note) for seed, (config, tables, note) in enumerate(given)
    ]
    write_published(folder, some, {})
    assert by_text(run.record for run in Store(folder).runs()) == by_text(some)


def test_what_no_table_can_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be published"):
        write_published(tmp_path, [record(tables={"a": {"columns": {"b": [1]}}})], {})
    assert not list(tmp_path.iterdir())
