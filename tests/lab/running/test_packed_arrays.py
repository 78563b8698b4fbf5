"""Arrays of many runs in one file: the page that is made from it is the same, and no other array is kept."""

import pytest
import torch

from racecar.cli.app import run as command
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.report import write_report
from racecar_lab.running.packed_arrays import NAME, pack_arrays
from racecar_lab.running.results import Store
from tests.lab.report.records import record
from tests.lab.tiny import plain


def fill(folder):
    """Two variants, four seeds, each with arrays of its own."""
    store, rng = Store(folder), torch.Generator().manual_seed(0)
    for variant in ("Std", "RR"):
        for seed in range(4):
            arrays = {name: torch.rand(2, 1, 4, 4, generator=rng) for name in ("d1", "rebuilt", "unseen")}
            store.write(record(variant, seed, {"ssim": 0.5}, experiment="mnist", config={"lr": 0.1}), {}, arrays)
    return store


def test_the_page_is_the_same(tmp_path, capsys):
    store = fill(tmp_path)
    arrays = {run.id: run.arrays for run in store.runs()}

    def page():
        report = write_report(tmp_path, EXPERIMENTS)
        assert not report.problems
        return {path.name: path.read_bytes() for path in (report.markdown, *(tmp_path / "figures").iterdir())}

    before = page()
    assert command(["pack", str(tmp_path), "--figures"]) == 0
    assert not list((tmp_path / "arrays").iterdir())
    kept = {run.id: run.arrays for run in store.runs() if run.arrays}
    assert all(torch.equal(kept[id][one], arrays[id][one]) for id in kept for one in kept[id])
    count = sum(map(len, kept.values()))
    assert capsys.readouterr().out.splitlines()[-1] == f"{count} arrays packed into {tmp_path / NAME}"
    assert count == 3  # the pictures, and a row for each of the two nets of the first seed
    assert page() == before
    assert command(["pack", str(tmp_path), "--figures"]) == 0
    assert {run.id: set(run.arrays) for run in store.runs() if run.arrays} == {id: set(kept[id]) for id in kept}


def test_a_file_of_its_own_comes_first(tmp_path):
    store = fill(tmp_path)
    first, second = store.runs()[:2]
    pack_arrays(tmp_path, {run.id: {"rebuilt": torch.ones(2)} for run in (first, second)})
    store.write(record("Std", 7, experiment="mnist"), {}, {"rebuilt": torch.zeros(3)})
    store.write(second.record, {}, {"rebuilt": torch.zeros(3)})
    assert {run.id: run.arrays["rebuilt"].tolist() for run in store.runs() if run.arrays} == {
        first.id: [1.0, 1.0],
        second.id: [0.0] * 3,
        record("Std", 7, experiment="mnist")["id"]: [0.0] * 3,
    }


def test_a_figure_that_cannot_be_drawn_costs_nothing(tmp_path, monkeypatch, capsys):
    """Nobody knows what it needs."""
    fill(tmp_path)
    monkeypatch.setattr(type(EXPERIMENTS["mnist"]), "figures", lambda *_: 1 / 0)
    assert command(["pack", str(tmp_path), "--figures"]) == 2
    assert "the figures of mnist could not be drawn" in capsys.readouterr().err
    assert len(list((tmp_path / "arrays").iterdir())) == 8
    assert not (tmp_path / NAME).exists()


def test_a_damaged_pack(tmp_path):
    """Cut off, or with one other bit anywhere: of a tensor, of its name, of its checksum."""
    store = Store(tmp_path)
    store.write(one := record(experiment="mnist"), {}, {"a": torch.tensor([0.1, 0.2]), "b": torch.tensor(3)})
    kept = store.get(one["id"]).arrays
    pack_arrays(tmp_path, {one["id"]: kept})
    whole = (tmp_path / NAME).read_bytes()
    assert plain(store.get(one["id"]).arrays) == plain(kept)
    damaged = [bytes(b ^ (j == i) << i % 8 for j, b in enumerate(whole)) for i in range(len(whole))]
    for content in (whole[:-7], *damaged):
        (tmp_path / NAME).write_bytes(content)
        with pytest.raises(ValueError, match=f"{NAME} is damaged"):
            _ = store.get(one["id"]).arrays
