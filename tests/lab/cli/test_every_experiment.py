"""Every experiment from the command line: its records, its page, and where runs go that are no evidence."""

import re

import pytest

from racecar_lab.running.results import Store
from tests.lab.cli.commands import INFORMATION, ONE, PEAKS, records, rows
from tests.lab.experiments.pictures import write_task

pytestmark = pytest.mark.usefixtures("no_data", "measured_once")


def test_digits_without_any_data(cli, undrawn):
    result = cli("run", "digits", "--quick", "--set", "epochs=2", "--seeds", "1", "--workers", "1", "--out", "out")
    assert (result.status, result.err) == (0, "")
    assert [row["variant"] for row in rows(result.out)] == ["Std", "Ort", "RR"]
    assert {one["config"]["shipped"] for one in records("out")} == {True}
    report = cli("report", "out")
    assert (report.status, report.err) == (0, "")


def test_mnist_without_any_data(cli, refused, undrawn):
    """Forty digits serve to see that it works, and are no evidence; a folder that is named must have them all."""
    arguments = ("run", "mnist", "--quick", "--variants", "RR", "--workers", "1", "--out", "out")
    result = cli(*arguments)
    words = "forty digits that come with racecar, to see that it works: no evidence"
    assert result.status == 0
    assert words in " ".join(result.err.split())
    assert {one["config"]["shipped"] for one in records("out")} == {True}
    assert cli("report", "out").status == 0
    assert words in (Store("out").folder / "report.md").read_text()
    assert "racecar data fetch mnist" in refused(*arguments, "--data", ".")


def test_information_and_its_stages(cli):
    names = ("Std", "Pre", "lRR", "Drop")
    result = cli("run", *INFORMATION, "--seeds", "1", "--variants", ",".join(names), "--weight", "Pre=1")
    assert (result.status, result.err) == (0, "")
    found = {(one["variant"], one["stage"]) for one in records("out")}
    assert found == {(v, s) for v in names for s in ("A", "AA", "AB")} | {("Std", "B")}
    parents = {one["id"]: one for one in records("out")}
    for one in records("out"):
        parent = parents.get(one["parent"])
        assert (parent is not None) is (one["stage"] in ("AA", "AB"))
        if parent:
            assert (parent["stage"], parent["variant"], parent["seed"]) == ("A", one["variant"], one["seed"])
        assert one["task"] == ("B" if one["stage"] in ("AB", "B") else "A")
        assert one["regularised"] is (one["stage"] == "A")


def test_a_file_chooses_the_task(cli, tmp_path):
    """Labels that the number of ones decides: the baseline gets them all, so this file it was."""
    write_task(tmp_path / "mine.mat")
    result = cli("run", *INFORMATION, *ONE, "--data", tmp_path / "mine.mat")
    assert (result.status, result.err) == (0, "")
    assert {one["config"]["source"] for one in records("out")} == {"var_u"}
    assert {row["bit_count"] for row in rows(result.out)} == {"1.000"}
    again = cli("run", *INFORMATION, *ONE)
    assert again.err == ""  # the task from its rule is another one
    assert {one["config"]["source"] for one in records("out")} == {"var_u", "sphere"}


def test_the_verdict_is_that_of_the_page(cli, undrawn):
    ran = cli("run", *INFORMATION, "--variants", "Std,RR", "--seeds", "2")
    assert cli("report", "out").status == 0
    (said,) = re.findall("^verdict: (.*); (.*)$", ran.out, re.MULTILINE)
    assert re.search(r"\d+ × not run", said[1])
    page = (Store("out").folder / "report.md").read_text()
    assert all(part in page for part in said)


WHERE = [
    (("run", *PEAKS[1:-2]), "peaks-quick", "quick"),
    (("run", "peaks", *PEAKS[3:-2]), "peaks", ""),
    (("sweep", *PEAKS[1:-2], "--over", "beta=0.2"), "peaks-quick", "quick"),
    (("search", *INFORMATION[:-2]), "information-search", "search"),
    (("search", *INFORMATION[:-2], "--quick"), "information-search-quick", "search"),
]


@pytest.mark.parametrize("arguments, name, purpose", WHERE, ids=[f"{a[0]} {name}" for a, name, _ in WHERE])
def test_what_is_no_evidence_goes_elsewhere(cli, search, arguments, name, purpose, tmp_path):
    result = cli(*arguments, "--variants", "Std", *(() if arguments[0] == "search" else ("--seeds", "1")))
    assert (result.status, result.err) == (0, "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    assert {one["purpose"] for one in records(tmp_path / "out" / name)} == {purpose}
    assert ("no evidence" in result.out) == (purpose == "quick")
