"""What is published is what was run: records by the net that they are of, searches by their name."""

import json
from pathlib import Path

import pytest

from benchmarks import publish
from racecar_lab.running.results import Store
from tests.lab.report.records import write

PUBLISHED = Path(__file__).parents[2] / "results" / "sequences"


def test_records_and_searches(tmp_path):
    """Into a folder that is new, then the same nets again beside another one."""
    first, *rest = [run.record for run in Store(PUBLISHED).runs()][:3]
    for name, some in (("one", [first, rest[0]]), ("two", [{**first, "note": "newer"}, rest[1]])):
        write(tmp_path / name, some)
        (tmp_path / name / "tuned.json").write_text(json.dumps({"command": name}))
    folder = tmp_path / "results"
    for name in ("one", "two"):
        assert publish.publish(folder, [tmp_path / name]) == (2, 0)
        publish.searches(folder, {"a": tmp_path / name, name: tmp_path / name})
    assert publish.publish(folder, [tmp_path / "two"]) == (2, 0)  # the same once more
    found = {run.record["id"]: run.record for run in Store(folder).runs()}
    assert found == {first["id"]: {**first, "note": "newer"}, **{one["id"]: one for one in rest}}
    lines = [json.loads(line) for line in (folder / publish.SEARCHES).read_text().splitlines()]
    assert [(one["name"], one["command"]) for one in lines] == [("a", "two"), ("one", "one"), ("two", "two")]


def test_nets_that_were_searched_again_replace_the_earlier(tmp_path):
    """They have other ids, because a search chose other settings for them."""
    one = next(run.record for run in Store(PUBLISHED).runs() if run.record["tuned"])
    again = {**one, "id": "0" * 16, "tuned": {name: 2 * value for name, value in one["tuned"].items()}}
    for name, some in (("one", [one]), ("two", [again])):
        publish.publish(tmp_path / "results", [write(tmp_path / name, some)])
    assert [run.id for run in Store(tmp_path / "results").runs()] == ["0" * 16]


def test_one_of_two_experiments_in_a_folder(tmp_path):
    """As smoke and its autoencoders, which share their GANs."""
    first, second = [run.record for run in Store(PUBLISHED).runs()][:2]
    write(tmp_path, [first, {**second, "experiment": "other"}])
    for name, wanted in (("sequences", first), ("other", second)):
        assert publish.publish(tmp_path / name, [tmp_path], name) == (1, 0)
        assert [run.id for run in Store(tmp_path / name).runs()] == [wanted["id"]]
    with pytest.raises(ValueError, match="no records of peaks in"):
        publish.publish(tmp_path / "results", [tmp_path], "peaks")


def test_nothing_to_publish(tmp_path):
    with pytest.raises(ValueError, match="no records in"):
        publish.publish(tmp_path / "results", [tmp_path])
