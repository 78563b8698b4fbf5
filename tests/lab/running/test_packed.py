"""Records in one file: the same as in a file for each, whatever happens on the way."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racecar.cli.app import run as command
from racecar_lab.report.read_records import read_runs
from racecar_lab.running.packed import NAME, pack
from racecar_lab.running.results import Store
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


def test_what_a_pack_can_do_without(tmp_path, capsys):
    """Curves and tables go, in records that were packed before, too; nothing else changes."""
    full = [record(seed=seed, curves={"epoch": [1.0, 2.0]}, tables={"plane": [{"a": 1}]}) for seed in range(3)]
    write(tmp_path, full[:2])
    pack(tmp_path)
    write(tmp_path, full[2:])
    assert command(["pack", str(tmp_path), "--without", "curves"]) == 0
    assert held(tmp_path) == {one["id"]: {**one, "curves": {}} for one in full}
    assert pack(tmp_path, ["curves", "tables"]) == 0
    assert held(tmp_path) == {one["id"]: {**one, "curves": {}, "tables": {}} for one in full}
    assert command(["pack", str(tmp_path), "--without", "metrics"]) == 2
    assert "a pack can do without curves or tables, and nothing else" in capsys.readouterr().err
    assert held(tmp_path)[full[0]["id"]]["metrics"] == full[0]["metrics"]


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

    monkeypatch.setattr("racecar_lab.running.packed.json.dumps", dumps)
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
    "a bad field": lambda line: line.replace(b'"2026-', b'3,"2026-', 1).replace(b'Z",', b'Z"', 1),
    "too long": lambda line: line[:-1] + b",3]",
    "no id": lambda line: b"[" + line[20:],
    "no list": lambda line: b"3",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_line_is_named_and_the_others_are_not_lost(folder, how):
    pack(folder)
    lines = (folder / NAME).read_bytes().splitlines()
    assert len(lines) == 8  # what they share, their setting, six runs
    where, id = f"line 8 of {folder / NAME}", json.loads(lines[7])[0]
    (folder / NAME).write_bytes(b"\n".join([*lines[:7], BROKEN[how](lines[7])]))
    store, others = Store(folder), {one["id"] for one in RECORDS} - {id}
    with pytest.raises(ValueError, match=f"{id}.json" if how in ("no id", "no list") else where):
        store.get(id)
    assert {store.get(one).id for one in others} == others
    runs, (problem,) = read_runs(folder)
    assert {run.id for run in runs} == others
    assert where in problem
    before = (folder / NAME).read_bytes()
    for read in (store.runs, lambda: pack(folder)):
        with pytest.raises(ValueError, match=where):
            read()
    assert (folder / NAME).read_bytes() == before


LOST = [{"RR", "lRR", "Std"}, {"RR", "lRR"}, {"lRR"}, {"Std"}]
"""By heading: whose records are lost with it. The one of lRR says but what differs from the one of RR."""


@pytest.mark.parametrize("heading", range(4))
@pytest.mark.parametrize("how", ["truncated", "no values", "no names"])
def test_below_a_broken_heading(tmp_path, heading, how):
    """What needs it is named, and nothing is read as something else; a record beside the pack is read all the same."""
    metrics = {"RR": {"a": 1.0}, "lRR": {"a": 2.0}, "Std": {"b": 3.0}}
    some = {(v, seed): record(v, seed, metrics[v]) for v in metrics for seed in range(2)}
    folder = write(tmp_path, list(some.values()))
    pack(folder)
    lines = (folder / NAME).read_text().splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith("{")][heading]
    content = json.loads(lines[at])
    changed = {"columns": [3]} if how == "no names" and heading else {"group" if heading else "shared": 3}
    lines[at] = lines[at][:-5] if how == "truncated" else json.dumps({**content, **changed})
    (folder / NAME).write_text("\n".join(lines))
    write(folder, [record(seed=9)])
    runs, problems = read_runs(folder)
    left = {(run.variant, run.seed): run.record for run in runs if run.seed != 9}
    assert left == {key: one for key, one in some.items() if key[0] not in LOST[heading]}
    assert len(runs) == len(left) + 1
    assert sum(f"line {at + 1} of {folder / NAME}" in one for one in problems) == 1
    assert len([one for one in problems if "below no heading" in one]) == 2 * len(LOST[heading])


names = st.text(alphabet="ab.λ\u2028 ", min_size=1, max_size=3)
leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False)
parts = st.dictionaries(names, leaves | st.lists(leaves, max_size=2) | st.dictionaries(names, leaves, max_size=1))


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(parts, parts, st.sampled_from(["Std", "RR"])), min_size=1, max_size=6))
def test_any_records(tmp_path_factory, given):
    """They come back as they were, the order of their fields and the kinds of their numbers (1, 1.0, true) included."""
    folder = tmp_path_factory.mktemp("records")
    some = [record(variant, seed, config=config, tables=tables) for seed, (config, tables, variant) in enumerate(given)]
    write(folder, some)
    pack(folder)
    assert {id: json.dumps(one) for id, one in held(folder).items()} == {one["id"]: json.dumps(one) for one in some}
    lines = [json.loads(line) for line in (folder / NAME).read_text().split("\n")[:-1]]
    assert sum(isinstance(line, list) for line in lines) == len(some)
    kinds = {json.dumps([one["config"], one["variant"]]) for one in some}
    assert len(kinds) <= sum("group" in line for line in lines if isinstance(line, dict)) <= len(some)


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
