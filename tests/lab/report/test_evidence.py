"""What is no evidence is marked on every page, and changes nothing of what is."""

from dataclasses import asdict
from functools import cache

import pytest

from racecar_lab.report.page import to_html, to_markdown
from racecar_lab.report.pictures import Picture
from racecar_lab.report.write import build
from racecar_lab.running.results import Store
from tests.lab.report.records import Peaks, peaks_records, record, runs

MARKS = {
    "quick": "quick runs: no evidence",
    "search": "runs of a search: no evidence",
    "other-data": "runs on other data than the published: no evidence",
}
COMMANDS = {
    "quick": "racecar run peaks --quick",
    "search": "racecar search peaks --seeds 2",
    "other-data": "racecar run peaks --other-data",
}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    """They are looked at elsewhere, and take most of the time."""
    picture = Picture("T", "T.", 1.0, 1.0, "<svg/>")
    monkeypatch.setattr("racecar_lab.report.section.picture", lambda *_: picture)


def page(records):
    return build({"": runs(records)}, {"peaks": Peaks()}, [])


@cache
def page_alone():
    """Without tries."""
    return page(peaks_records(3))


def tries(purpose):
    """Runs that would change every verdict, of a setting of their own."""
    config = {"net": "linear", "epochs": 3, "lr": 1e-4, "sizes": [784, 128, 2], "valid": 0.1}
    return [
        record(variant, seed, {"cosine_1": value + seed / 100, "lpips": value}, config=config, weight=weight,
               made={"command": COMMANDS[purpose]}, purpose=purpose)
        for variant, weight, value in (("Std", None, 0.9), ("RR", 5e-7, 0.1))
        for seed in range(1000, 1003)
    ]  # fmt: skip


@pytest.mark.parametrize("purposes", [("quick",), ("quick", "search")], ids=str)
def test_the_rest_of_the_page_is_as_without_it(purposes):
    real = peaks_records(3)
    alone = page_alone()
    mixed = page([*real, *(one for purpose in purposes for one in tries(purpose))])
    assert len(alone.sections[0].findings) >= 5
    assert alone.sections[0].finding in to_markdown(mixed, "figures")
    first, *others = mixed.sections
    assert asdict(first) == asdict(alone.sections[0])
    assert [one.mark for one in others] == [MARKS[purpose] for purpose in purposes]
    assert [one.facts["stages"] for one in others] == ["6"] * len(others)
    assert len({one.anchor for one in mixed.sections}) == 1 + len(others)


@pytest.mark.parametrize("purpose", MARKS)
def test_it_is_marked_and_not_judged(purpose):
    made = page(tries(purpose))
    (one,) = made.sections
    assert (one.findings, one.verdict, one.outcomes) == ([], "", [])
    assert [table.caption for table in one.tables] == ["Results"]  # and not beside the paper's
    for page_text in (to_html(made), to_markdown(made, "figures")):
        assert page_text.count(MARKS[purpose]) >= 2  # at the head of the page and at the part itself
    evidence = page_alone()
    assert not any(mark in to_html(evidence) + to_markdown(evidence, "figures") for mark in MARKS.values())


def test_a_run_that_was_asked_for_twice(tmp_path):
    """First to see that it works, then as evidence: it is trained once, and stands on the page as both."""
    store, how = Store(tmp_path), {"purpose": "quick", "made": {"command": COMMANDS["quick"]}}
    one = record("RR", 0, {"m": 1.0}, config={"lr": 1e-4}, **how)
    store.write(one, {}, {})
    for _ in range(2):
        store.add_setting(one["id"], one["config"], {}, "quick", COMMANDS["quick"])
        store.add_setting(one["id"], one["config"], {}, "", "racecar run peaks")
    both = store.runs()
    assert sorted(run.purpose for run in both) == ["", "quick"]
    evidence, quick = page([run.record for run in both]).sections
    assert (evidence.mark, quick.mark) == ("", MARKS["quick"])
    assert (evidence.commands, quick.commands) == (["racecar run peaks"], [COMMANDS["quick"]])


def test_a_short_try_has_a_verdict_of_its_own():
    """A configuration that was run as a real one is evidence, and judged by itself."""
    real = peaks_records(5)
    alone, config = page(real).sections[0], {"net": "linear", "epochs": 3, "lr": 1e-4, "sizes": [784, 128, 2]}
    short = [
        record(variant, seed, {"cosine_1": value + seed / 100}, config=config, weight=weight)
        for variant, weight, value in (("Std", None, 0.9), ("RR", 5e-7, 0.1))
        for seed in range(5)
    ]
    together = page([*real, *short])
    (one,) = together.sections
    outcomes = {label: (verdict, tally) for label, verdict, tally in one.outcomes}
    assert list(outcomes) == ["epochs = 3", "epochs = 5000"]
    assert [outcomes["epochs = 5000"]] == [each[1:] for each in alone.outcomes]
    assert outcomes["epochs = 3"] == ("contradicted", "5 claims: 1 × contradicted, 1 × too few runs, 3 × not run")
