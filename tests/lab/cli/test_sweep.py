"""``racecar sweep``: over a setting, over words, over the weight."""

import pytest

from tests.lab.cli.commands import ONE, PEAKS, records, rows

pytestmark = pytest.mark.usefixtures("no_data")


def test_sweep_over_a_setting(cli):
    """Each value with each weight of a variant that has some."""
    given = ("--variants", "Std,RR", "--seeds", "1", "--weight", "RR=1e-7,1e-6")
    result = cli("sweep", *PEAKS[1:], "--over", "lr=1e-4,1e-3", *given)
    assert (result.status, result.err) == (0, "")
    found = {(one["variant"], one["config"]["lr"], one["weight"]) for one in records("out")}
    rates = (1e-4, 1e-3)
    assert found == {("Std", lr, None) for lr in rates} | {("RR", lr, c) for lr in rates for c in (1e-7, 1e-6)}
    assert len({row["settings"] for row in rows(result.out)}) == 2


def test_sweep_over_words(cli):
    assert cli("sweep", *PEAKS[1:], "--over", "nets=linear,norm", *ONE).status == 0
    assert sorted(one["config"]["nets"] for one in records("out")) == [["linear"], ["norm"]]


def test_sweep_over_weight(cli):
    """The weight of every regulariser; what has none is run once, as it is, and Pre as the user says."""
    given = ("--variants", "Std,RR,Ort,Pre", "--seeds", "1", "--weight", "Pre=1")
    result = cli("sweep", *PEAKS[1:], "--over", "weight=1e-7,1e-6", *given)
    assert (result.status, result.err) == (0, "")
    found = sorted((one["variant"], one["weight"] or 0) for one in records("out"))
    assert found == [("Ort", 1e-7), ("Ort", 1e-6), ("Pre", 1), ("RR", 1e-7), ("RR", 1e-6), ("Std", 0)]
    assert [(row["variant"], row["weight"]) for row in rows(result.out)] == [
        ("Std", ""), ("RR", "1e-07"), ("RR", "1e-06"), ("Ort", "1e-07"), ("Ort", "1e-06"), ("Pre", "1"),
    ]  # fmt: skip
