"""Records in one file: the same as in a file for each, whatever happens on the way."""

import json
from pathlib import Path

import pytest

from racecar.cli.app import run as command
from racecar.lab.report.reading import read_runs
from racecar.lab.running.packed import NAME, pack
from racecar.lab.running.results import Store
from tests.lab.report.records import record, write

RECORDS = [record(seed=seed, metrics={"test_accuracy": 0.1 * seed, "λ": 1.0}) for seed in range(6)]


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path, RECORDS)


def held(folder):
    """All that can be seen of the records."""
    store = Store(folder)
    found = {run.id: run.record for run in store.runs()}
    assert list(found) == sorted(found)
    assert all(store.has(id) and store.get(id).record == one for id, one in found.items())
    runs, problems = read_runs(folder)
    assert not problems
    assert {run.id: run.record for run in runs} == found
    assert len(runs) == len(found)
    return found


def test_packed_records_are_the_same(folder, capsys):
    before = held(folder)
    assert command(["pack", str(folder)]) == 0
    assert capsys.readouterr().out == f"6 records packed into {folder / NAME}\n"
    assert held(folder) == before == {one["id"]: one for one in RECORDS}
    assert not list((folder / "records").iterdir())
    shared, *lines = (folder / NAME).read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == sorted(before)
    assert ": " not in lines[0].replace("racecar run", "")
    common = json.loads(shared)["shared"]
    assert all(common["made"].items() <= one["made"].items() for one in RECORDS)  # what all have stands there, once
    assert not any(common["made"].keys() & json.loads(line)["made"].keys() for line in lines)
    assert not Store(folder).has("0" * 16)
    with pytest.raises(ValueError, match="0000000000000000.json is no record that can be read"):
        Store(folder).get("0" * 16)


def test_packing_twice(folder):
    assert pack(folder) == 6
    content = (folder / NAME).read_bytes()
    assert pack(folder) == 0
    assert (folder / NAME).read_bytes() == content
    more = record(seed=9)
    write(folder, [more])
    assert len(held(folder)) == 7
    assert pack(folder) == 1
    assert held(folder).keys() == {one["id"] for one in (*RECORDS, more)}


@pytest.mark.parametrize("removed", range(6))
def test_killed_between_writing_and_removing(removed, folder, monkeypatch):
    before, unlink, left = held(folder), Path.unlink, [removed]

    def die(path, missing_ok=False):
        if path.suffix == ".json":
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", die)
    with pytest.raises(KeyboardInterrupt):
        pack(folder)
    monkeypatch.undo()
    assert len(list((folder / "records").iterdir())) == 6 - removed
    assert held(folder) == before
    assert pack(folder) == 6 - removed
    assert held(folder) == before


def test_killed_before_the_pack_is_in_its_place(folder, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    before = held(folder)
    monkeypatch.setattr("os.replace", die)
    with pytest.raises(KeyboardInterrupt):
        pack(folder)
    monkeypatch.undo()
    assert held(folder) == before
    assert not list(folder.glob("*.jsonl"))


def test_a_record_that_changes_meanwhile_stays(folder, monkeypatch):
    path = next((folder / "records").iterdir())
    changed = {**json.loads(path.read_text()), "note": "later"}
    writes = json.dumps

    def dumps(one, **how):
        path.write_text(writes(changed))
        return writes(one, **how)

    monkeypatch.setattr("racecar.lab.running.packed.json.dumps", dumps)
    pack(folder)
    monkeypatch.undo()
    assert list((folder / "records").iterdir()) == [path]
    assert held(folder)[path.stem]["note"] == "later"  # the single one is the newer
    assert pack(folder) == 1
    assert held(folder)[path.stem]["note"] == "later"


def test_ask(folder):
    """Another setting that a packed result stands for is noted in a file of its own, until it is packed again."""
    pack(folder)
    store, id = Store(folder), RECORDS[0]["id"]
    config = store.get(id).config
    store.ask(id, config, {}, "the same command")
    assert not list((folder / "records").iterdir())
    store.ask(id, {**config, "lr": 1.0}, {}, "another command")
    assert [one.config["lr"] for one in store.get(id).everywhere] == [1e-4, 1.0]
    pack(folder)
    assert [one.config["lr"] for one in store.get(id).everywhere] == [1e-4, 1.0]


BROKEN = {
    "truncated": lambda line: line[:-9],
    "no text": lambda line: line[:-9] + b"\xff" + line[-9:],
    "a bad field": lambda line: json.dumps({**json.loads(line), "metrics": 3}).encode(),
    "no id": lambda line: b'{"seed": 1}',
    "no object": lambda line: b"3",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_line_is_named_and_the_others_are_not_lost(folder, how):
    pack(folder)
    lines = (folder / NAME).read_bytes().splitlines()
    (folder / NAME).write_bytes(b"\n".join([*lines[:2], BROKEN[how](lines[2]), *lines[3:]]))
    store, ids = Store(folder), sorted(one["id"] for one in RECORDS)
    where = f"line 3 of {folder / NAME}"
    with pytest.raises(ValueError, match=where if how != "no id" and how != "no object" else f"{ids[1]}.json"):
        store.get(ids[1])
    assert [store.get(id).id for id in ids if id != ids[1]] == [ids[0], *ids[2:]]
    runs, (problem,) = read_runs(folder)
    assert sorted(run.id for run in runs) == [ids[0], *ids[2:]]
    assert where in problem
    before = (folder / NAME).read_bytes()
    for read in (store.runs, lambda: pack(folder)):
        with pytest.raises(ValueError, match=where):
            read()
    assert (folder / NAME).read_bytes() == before


def test_a_broken_first_line(folder):
    """Then every record lacks what they share; a record beside the pack is read all the same."""
    pack(folder)
    content = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(content.replace(b'{"shared":', b'{"shared":[', 1))
    write(folder, [record(seed=9)])
    runs, problems = read_runs(folder)
    assert [run.seed for run in runs] == [9]
    assert len(problems) == 7
    assert all(f"line {i} of {folder / NAME}" in " ".join(problems) for i in range(1, 8))


def test_lines_end_where_lines_end(tmp_path):
    """Not at what else Unicode calls a line break."""
    folder = write(tmp_path, [record(note="a\u2028b\x85c\x0bd"), record(seed=1)])
    before = held(folder)
    pack(folder)
    assert held(folder) == before


def test_nothing_to_pack(tmp_path):
    with pytest.raises(ValueError, match="there are no records in"):
        pack(tmp_path)


def test_a_name_that_is_not_its_own(folder):
    path = next((folder / "records").iterdir())
    path.rename(path.with_stem("0123"))
    with pytest.raises(ValueError, match=r"0123.json is the record of"):
        pack(folder)
