"""What is published is what was run: records by the net that they are of, searches by their name."""

import json
from pathlib import Path

import pytest

from benchmarks import publish
from racecar_lab.running.results import Store

PUBLISHED = Path(__file__).parents[2] / "results" / "sequences"


def test_records_and_searches(tmp_path):
    """Into a folder that is new, then the same nets again beside another one."""
    first, *rest = [run.record for run in Store(PUBLISHED).runs()][:3]
    for name, some in (("one", [first, rest[0]]), ("two", [{**first, "note": "newer"}, rest[1]])):
        (tmp_path / name / "records").mkdir(parents=True)
        for record in some:
            (tmp_path / name / "records" / f"{record['id']}.json").write_text(json.dumps(record))
        (tmp_path / name / "tuned.json").write_text(json.dumps({"command": name}))
    folder = tmp_path / "results"
    for name in ("one", "two"):
        assert publish.records(folder, [tmp_path / name]) == 2
        publish.searches(folder, {"a": tmp_path / name, name: tmp_path / name})
    assert publish.records(folder, [tmp_path / "two"]) == 2  # the same once more
    found = {run.record["id"]: run.record for run in Store(folder).runs()}
    assert found == {first["id"]: {**first, "note": "newer"}, **{one["id"]: one for one in rest}}
    lines = [json.loads(line) for line in (folder / publish.SEARCHES).read_text().splitlines()]
    assert [(one["name"], one["command"]) for one in lines] == [("a", "two"), ("one", "one"), ("two", "two")]
    assert not (folder / "records").exists()


def test_one_of_two_experiments_in_a_folder(tmp_path):
    """As smoke and its autoencoders, which share their GANs."""
    first, second = [run.record for run in Store(PUBLISHED).runs()][:2]
    (tmp_path / "records").mkdir()
    for record in (first, {**second, "experiment": "other"}):
        (tmp_path / "records" / f"{record['id']}.json").write_text(json.dumps(record))
    for name, wanted in (("sequences", first), ("other", second)):
        assert publish.records(tmp_path / name, [tmp_path], name) == 1
        assert [run.id for run in Store(tmp_path / name).runs()] == [wanted["id"]]
    with pytest.raises(ValueError, match="no records of peaks in"):
        publish.records(tmp_path / "results", [tmp_path], "peaks")


def test_nothing_to_publish(tmp_path):
    with pytest.raises(ValueError, match="no records in"):
        publish.records(tmp_path / "results", [tmp_path])
