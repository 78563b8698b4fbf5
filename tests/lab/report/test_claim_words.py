"""Findings in words, and the settings and units in them."""

import pytest

from racecar_lab.experiment import Claim
from racecar_lab.report.claim_words import distinct_settings, sentence
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.metrics import meanings, unit
from racecar_lab.report.settings import label
from tests.lab.report.records import record, runs
from tests.lab.report.test_claims import RR, STD
from tests.lab.report.test_forest import CLAIMS, findings


def test_the_sentence():
    """The first claim with its number, in one setting or in several, and how many claims have each verdict."""
    missing = Claim("Ort beats Std", "test_accuracy", "A", "Ort", "Std")
    judged = findings([*CLAIMS, missing])
    assert sentence(judged).startswith("RR beats Std: supported (+10.2 points, ")
    assert sentence(judged).endswith("; of 3 claims 2 supported, 1 contradicted.")
    assert sentence(judged[:1]).endswith("; the only claim supported.")
    assert "1 claim could" in sentence(judged[3:])
    assert sentence([]) == ""
    several = sentence(findings(CLAIMS[:1], {"one": 0.0, "two": 0.2, "three": -0.3}))
    assert several.startswith("RR beats Std: of 3 settings supported in 2, contradicted in 1 (−19.8 to +30.2 points)")


def test_distinct_settings():
    """Neither what never varies, nor what the claim names, nor what follows from another field."""
    records = [
        record(name, seed, {"m": value}, config={"cost": 1.4 + norm, "norm": norm, "net": net, "lr": 1})
        for norm in (False, True)
        for net in ("one", "two")
        for name, values in (("Std", STD), ("RR", RR))
        for seed, value in enumerate(values)
    ]
    claims = [Claim("", "m", "A", "RR", "Std", where={"net": net}) for net in ("one", "two")]
    judged = judge(claims, gather(runs(records)))
    assert sorted(map(label, distinct_settings(judged))) == ["norm = False"] * 2 + ["norm = True"] * 2
    assert distinct_settings(judged[:1]) == [()]


@pytest.mark.parametrize(
    "metric, more, expected",
    [
        ("valid_accuracy", {}, ("points", 100)),
        ("probe_2", {}, ("points", 100)),
        ("test_within", {}, ("points", 100)),
        ("test_mse", {}, ("test_mse", 1)),
        ("ssim_scaled", {}, ("SSIM", 1)),
        ("test_ssim", {}, ("test_ssim", 1)),
        ("reverse_loss", {"margin": 0.1, "relative": True}, ("%", 100)),
    ],
)
def test_units(metric, more, expected):
    assert unit(Claim("", metric, "A", "RR", "Std", **more)) == expected


def test_meanings():
    found = meanings(["odd", "probe_10", "probe_2", "probe_10"])
    assert list(found) == ["probe_10", "probe_2"]
    assert "with 10 labelled pictures" in found["probe_10"]
