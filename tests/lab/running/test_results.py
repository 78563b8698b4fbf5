"""The results store: whole or not there, safe to read, and what is broken is named with what to do."""

import hashlib
import io
import json
import os
import pickle
import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from racecar_lab.running.record import FIELDS, FORMAT, read_record, with_checksum
from racecar_lab.running.results import Store, identity
from tests.lab.report.records import record

WEIGHTS = {"layer.weight": torch.arange(6.0).view(2, 3).t(), "count": torch.tensor(7), "half": torch.ones(3).bfloat16()}
ARRAYS = {"vectors": torch.randn(2, 3, generator=torch.Generator().manual_seed(0))}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_was_written_is_read(store):
    one = record("RR", 3, {"test_accuracy": 0.5}, weight=5e-7)
    id = one["id"]
    assert not store.has(id)
    store.write(one, WEIGHTS, ARRAYS)
    assert files(store.folder) == [f"arrays/{id}.safetensors", f"records/{id}.json", f"weights/{id}.safetensors"]
    assert store.has(id)
    run = store.get(id)
    sums = {
        kind: hashlib.sha256((store.folder / kind / f"{id}.safetensors").read_bytes()).hexdigest()
        for kind in ("weights", "arrays")
    }
    assert run.record == {**one, "sha256": sums}
    assert (run.id, run.variant, run.weight, run.seed, run.stage) == (id, "RR", 5e-7, 3, "A")
    assert (run.metrics, run.finished, run.tables) == ({"test_accuracy": 0.5}, True, {})
    for found, kept in ((store.weights(id), WEIGHTS), (run.arrays, ARRAYS)):
        assert found.keys() == kept.keys()
        assert all(found[name].equal(kept[name]) and found[name].dtype == kept[name].dtype for name in kept)
    assert [one.id for one in store.runs()] == [id]


def test_tensors_that_share_memory_or_need_gradients(store):
    base = torch.arange(8.0, requires_grad=True)
    tied = {"a": base, "b": base, "part": base[2:5], "turned": base.view(2, 4).t(), "empty": torch.ones(0, 3)}
    store.write(record(), tied, {})
    found = store.weights(record()["id"])
    assert all(found[name].equal(tied[name]) for name in tied)


def test_nothing_to_keep_makes_no_file(store):
    store.write(record(status="diverged"), {}, {})
    assert files(store.folder) == [f"records/{record()['id']}.json"]
    run = store.get(record()["id"])
    assert not run.finished
    assert run.arrays == {}


def test_a_checkpoint_goes_when_its_stage_is_done(store):
    one = record()
    path = store.checkpoint(one["id"])
    path.parent.mkdir(parents=True)
    path.write_bytes(b"state")
    store.write(one, WEIGHTS, ARRAYS)
    assert not path.exists()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_record_comes_last(store, monkeypatch, at):
    """Power fails at the n-th file: there is no record, nothing half written, and the checkpoint is still there."""
    one, real, count = record(), os.replace, 0
    checkpoint = store.checkpoint(one["id"])
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"state")

    def fail(source, target):
        nonlocal count
        count += 1
        if count == at:
            raise OSError("no power")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no power"):
        store.write(one, WEIGHTS, ARRAYS)
    assert not store.has(one["id"])
    assert checkpoint.exists()
    assert not [name for name in files(store.folder) if name.endswith(".tmp")]
    monkeypatch.undo()
    store.write(one, WEIGHTS, ARRAYS)
    assert store.get(one["id"]).record["id"] == one["id"]


def test_a_record_is_replaced_whole(store):
    """What is there stays until the new one is."""
    store.write(record(metrics={"m": 1.0}), WEIGHTS, ARRAYS)
    with pytest.raises((TypeError, ValueError)):
        store.write(record(metrics={"m": object()}), WEIGHTS, ARRAYS)
    assert store.get(record()["id"]).metrics == {"m": 1.0}


BROKEN = {
    "empty": b"",
    "truncated": json.dumps(record()).encode()[:200],
    "no JSON": b"hello",
    "no text": b"\xff\xfe\x00\x80",
    "a list": b"[]",
    "a number": b"3",
    "too deep": b"[" * 100_000,
    "null": b"null",
    "foreign": b'{"name": "package", "version": "1.0"}',
    "older": json.dumps(with_checksum({**record(), "format": FORMAT - 1})).encode(),
    "newer": json.dumps(with_checksum({**record(), "format": FORMAT + 1})).encode(),
    "without its checksum": json.dumps(record()).encode(),
    "with another number": json.dumps({**with_checksum(record()), "seed": 1}).encode(),
    "pickled": pickle.dumps(record()),
    "a bad field": json.dumps({**record(), "metrics": {"test_accuracy": "high"}}).encode(),
    **{f"without {name}": json.dumps({k: v for k, v in record().items() if k != name}).encode() for name in FIELDS},
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_record_is_named_with_the_remedy(store, content):
    path = store.folder / "records" / f"{record()['id']}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    for read in (lambda: read_record(path), lambda: store.get(record()["id"]), lambda: list(store.runs())):
        with pytest.raises(ValueError, match="delete it") as error:
            read()
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_a_record_of_another_stage_under_this_name(store):
    """Copied or renamed by hand: its weights would be looked for under another name."""
    store.write(record(seed=1), WEIGHTS, ARRAYS)
    id, other = record(seed=1)["id"], record(seed=2)["id"]
    os.rename(store.folder / "records" / f"{id}.json", store.folder / "records" / f"{other}.json")
    with pytest.raises(ValueError, match="delete it"):
        store.get(other)


def test_a_record_that_is_not_there(store):
    with pytest.raises(ValueError, match=re.escape(str(store.folder / "records" / "0123.json"))):
        store.get("0123")
    assert list(store.runs()) == []


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize("kind", ["weights", "arrays"])
@pytest.mark.parametrize("how", ["empty", "truncated", "header", "pickled", "torch", "text"])
def test_broken_tensors_are_named_with_the_remedy(store, kind, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.write(record(), WEIGHTS, ARRAYS)
    path = store.folder / kind / f"{record()['id']}.safetensors"
    whole = path.read_bytes()
    saved = io.BytesIO()
    torch.save({"x": Evil()}, saved)
    content = {
        "empty": b"", "truncated": whole[:-5], "header": whole[:20], "text": b"weights",
        "pickled": pickle.dumps(Evil()), "torch": saved.getvalue(),
    }  # fmt: skip
    path.write_bytes(content[how])
    with pytest.raises(ValueError, match="delete") as error:
        store.weights(record()["id"]) if kind == "weights" else store.get(record()["id"]).arrays
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "unpickled").exists()


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("at", [-1, -10])
def test_a_flipped_byte_is_not_used(store, at):
    """It is still a file of tensors, but not the one that was written."""
    one = record()
    store.write(one, WEIGHTS, ARRAYS)
    for kind, read in (("weights", lambda: store.weights(one["id"])), ("arrays", lambda: store.get(one["id"]).arrays)):
        path = store.folder / kind / f"{one['id']}.safetensors"
        flip(path, at)
        with pytest.raises(ValueError, match=f"SHA-256.*delete records/{one['id']}.json") as error:
            read()
        assert str(path) in str(error.value)
        flip(path, at)
        assert read()


def test_missing_weights_are_named_with_the_remedy(store):
    store.write(record(), WEIGHTS, ARRAYS)
    path = store.folder / "weights" / f"{record()['id']}.safetensors"
    path.unlink()
    with pytest.raises(ValueError, match="is missing: delete records/") as error:
        store.weights(record()["id"])
    assert str(path) in str(error.value)


WORDS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(tables=st.dictionaries(WORDS, JSON, max_size=4))
@example(tables={"note": "[1,  2]", "rows": [[1, 2.5], [], [None], ["a", "[1 \u00a0 2]"]], "[ 1 ]": -1e-300})
def test_whatever_json_can_hold_comes_back(tmp_path_factory, tables):
    store = Store(tmp_path_factory.getbasetemp() / "json")
    store.write(record(tables=tables, note=" ".join(tables)), {}, {})
    run = store.get(record()["id"])
    assert run.tables == tables
    assert run.record["note"] == " ".join(tables)


@given(st.dictionaries(WORDS, JSON, max_size=4), st.dictionaries(WORDS, JSON, max_size=4))
def test_identity(one, other):
    """The same for the same, in whatever order and after any way through a file; else another one."""
    assert re.fullmatch("[0-9a-f]{16}", identity(one))
    assert identity(dict(reversed(one.items()))) == identity(one)
    assert identity(json.loads(json.dumps(one))) == identity(one)
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (identity(one) == identity(other)) == same


def test_identity_stays_as_it_is():
    """Records that were published keep their names: this hash was made with sha256sum."""
    assert identity({"b": [1, 2.5, None], "a": "x"}) == "ce74053d7a9997b7"


def test_a_result_under_another_setting(store):
    """It has a record for each setting that it was asked for under, once; trained anew, for that one alone."""
    store.write(one := record("RR", 0, {"m": 1.0}), WEIGHTS, ARRAYS)
    for _ in range(2):
        store.add_setting(one["id"], one["config"], {}, "", "the same")
        store.add_setting(one["id"], one["config"], {"lr": 1e-4}, "", "another")
    first, second = store.runs()
    assert (first.id, second.id) == (one["id"], one["id"])
    assert first.record == store.get(one["id"]).record
    assert second.record == {**first.record, "tuned": {"lr": 1e-4}, "made": {**one["made"], "asked_by": "another"}}
    assert second.arrays.keys() == ARRAYS.keys()
    store.write(one, WEIGHTS, ARRAYS)
    assert len(store.runs()) == 1
