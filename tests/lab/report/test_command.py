"""``racecar report``."""

import json
import webbrowser

import pytest

from racecar.cli import app as cli
from racecar_lab import experiments
from racecar_lab.experiment import Reporting
from racecar_lab.report.read_records import read_runs
from racecar_lab.running.record import wrong
from tests.lab.report.records import Peaks, record, write


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command line; returns status, stdout and stderr."""
    monkeypatch.setattr(experiments, "EXPERIMENTS", {"peaks": Peaks()})

    def call(*arguments):
        return cli.run(["report", *map(str, arguments)]), *capsys.readouterr()

    return call


RECORDS = [record("Std", seed, {"m": seed / 10}, experiment="other") for seed in range(3)]


def test_writes_and_says_where(call, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    write(tmp_path, RECORDS)
    status, out, err = call(tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [str(tmp_path / "report.html"), str(tmp_path / "report.md")]
    assert opened == []
    status, *_ = call(tmp_path, "--open")
    assert opened == [(tmp_path / "report.html").as_uri()]
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_broken_record_is_named_and_the_others_are_not_lost(call, tmp_path):
    write(tmp_path, RECORDS)
    (tmp_path / "records" / "0bad.json").write_text('{"format": 1, ')
    status, out, err = call(tmp_path)
    assert status == 2
    assert out.splitlines()[0] == str(tmp_path / "report.html")
    assert err.count("\n") == 1
    assert "0bad.json" in err
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text()
        assert "0bad.json" in text
        assert "0.10" in text  # the mean of the others


@pytest.mark.parametrize("make", [lambda folder: None, lambda folder: folder.mkdir(), lambda folder: folder.touch()])
def test_nothing_to_report(call, tmp_path, make):
    folder = tmp_path / "results"
    make(folder)
    status, out, err = call(folder)
    assert (status, out) == (2, "")
    assert err.startswith("racecar: ")
    assert err.count("\n") == 1
    assert str(folder) in err


def test_a_folder_of_folders(call, tmp_path):
    """One page; what was run apart stays apart, and one broken folder does not lose the others."""
    for name, value in (("first", 0.25), ("second", 0.75)):
        write(tmp_path / name, [record("Std", seed, {"m": value}, experiment="other") for seed in range(3)])
    (tmp_path / "bench").mkdir()
    status, out, err = call(tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [str(tmp_path / "report.html"), str(tmp_path / "report.md")]
    page = (tmp_path / "report.md").read_text()
    parts = page.split("\n## ")
    for name, value in (("first", "0.25"), ("second", "0.75")):
        (part,) = [one for one in parts if one.startswith(f"other ({name})")]
        assert value in part
    write(tmp_path / "broken", RECORDS[:1])
    for path in (tmp_path / "broken" / "records").iterdir():
        path.write_text("[]")
    status, out, err = call(tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert str(tmp_path / "broken") in err
    assert "other (second)" in (tmp_path / "report.md").read_text()


def test_the_folder_of_the_records_themselves(call, tmp_path):
    write(tmp_path, RECORDS)
    status, _, err = call(tmp_path / "records")
    assert status == 2
    assert err.endswith(f"name the folder that it is in, {tmp_path}\n")


def test_nothing_can_be_read(call, tmp_path):
    write(tmp_path, RECORDS)
    for path in (tmp_path / "records").iterdir():
        path.write_text("[]")
    status, out, err = call(tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "and 2 more" in err
    assert not (tmp_path / "report.html").exists()


BROKEN = [
    ({"id": None}, "id"),
    ({"id": 3}, "id"),
    ({"parent": ["A"]}, "parent"),
    ({"purpose": "fun"}, "purpose"),
    ({"purpose": []}, "purpose"),
    ({"sha256": "0"}, "sha256"),
    ({"metrics": {"m": 10**400}}, "metrics m"),
    ({"metrics": {"m": "high"}}, "metrics m: 'high'"),
    ({"metrics": {"m": float("nan")}}, "metrics m: nan"),
    ({"metrics": None}, "metrics"),
    ({"metrics": []}, "metrics"),
    ({"seed": "0"}, "seed"),
    ({"seed": None}, "seed"),
    ({"weight": "1"}, "weight"),
    ({"variant": None}, "variant"),
    ({"cost": {"step_s": "fast"}}, "cost step_s"),
    ({"curves": {"loss": 3}}, "curve loss"),
    ({"curves": {"loss": [1.0, "x"]}}, "curve loss"),
    ({"made": "yesterday"}, "made"),
    ({"config": 3}, "config"),
    ({"tuned": [1]}, "tuned"),
    ({"tuned": {"lr": None}}, "tuned lr"),
    ({"tuned": {"lr": "fast"}}, "tuned lr: 'fast'"),
    ({"regularised": 1}, "regularised"),
    ({"dead": "conv1"}, "dead"),
    ({"seed": True}, "seed"),
]


@pytest.mark.parametrize("change, words", BROKEN, ids=[f"{words}-{i}" for i, (_, words) in enumerate(BROKEN)])
def test_records_that_no_page_can_be_made_of(tmp_path, change, words):
    """Whoever reads such a record says which field it is, and in which file."""
    assert words in wrong(RECORDS[0] | change)
    write(tmp_path, RECORDS[1:])
    (tmp_path / "records" / "bad.json").write_text(json.dumps(RECORDS[0] | change))
    runs, (problem,) = read_runs(tmp_path)
    assert len(runs) == 2
    assert "bad.json" in problem
    assert words in problem


def test_null_stands_for_what_was_not_finite():
    assert wrong(RECORDS[0]) == wrong(RECORDS[0] | {"metrics": {"m": None}, "curves": {"loss": [None, 1.0]}}) == ""


def broken_when_made(runs):
    raise KeyError("vectors")


def broken_when_drawn(runs):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.suptitle(r"$\nothing$")
    return {"Bad": figure}


@pytest.mark.parametrize("figures", [broken_when_made, broken_when_drawn])
def test_figures_that_cannot_be_drawn_are_named(call, tmp_path, monkeypatch, figures):
    monkeypatch.setattr(Peaks, "reporting", Reporting(figures=figures))
    write(tmp_path, [record("Std", seed, {"cosine_1": 0.1}) for seed in range(2)])
    status, out, err = call(tmp_path)
    assert status == 2
    assert out.count("\n") == 2
    assert err.count("\n") == 1
    assert "the figures of peaks could not be drawn: " in err
    assert "could not be drawn" in (tmp_path / "report.html").read_text()
