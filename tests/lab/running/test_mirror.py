"""A folder of results that is repeated elsewhere."""

import os
from pathlib import Path

import pytest

from racecar_lab.running.engines.mirror import Changes, Mirror


def test_what_happens_in_a_folder_is_repeated(tmp_path, monkeypatch):
    """Records come last and files go after them; what is half written does not count."""
    here, there = tmp_path / "here", tmp_path / "there"
    mirror = Mirror(here)
    assert not mirror.changes()
    for name in ("records/a.json", "weights/a.safetensors", "checkpoints/b.pt", "checkpoints/.b.tmp", "other/c"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    changes = mirror.changes()
    assert set(changes.files) == {"records/a.json", "weights/a.safetensors", "checkpoints/b.pt"}
    changes.repeat(there)
    assert not mirror.changes()
    (here / "checkpoints/b.pt").unlink()
    (here / "records/b.json").write_text("b")
    order, replace, unlink = [], os.replace, Path.unlink
    monkeypatch.setattr(os, "replace", lambda source, target: (order.append(target), replace(source, target)))
    monkeypatch.setattr(Path, "unlink", lambda path, **more: (order.append(path), unlink(path, **more)))
    mirror.changes().repeat(there)
    assert order == [there / "records/b.json", there / "checkpoints/b.pt"]
    found = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    assert found == {"records/a.json", "records/b.json", "weights/a.safetensors"}


def test_a_full_disk_costs_a_checkpoint_not_the_run(tmp_path, monkeypatch):
    place = os.replace

    def replace(source, target):
        if "checkpoints" in str(target):
            raise OSError(28, "No space left on device")
        place(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.warns(UserWarning, match="a checkpoint was not written, and the work goes on: No space left"):
        Changes({"checkpoints/a.pt": b"a", "records/b.json": b"b"}).repeat(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b.json"]
