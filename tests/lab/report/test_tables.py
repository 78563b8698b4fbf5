"""Tables: the right numbers in the right cells."""

from statistics import mean, stdev

import pytest

from racecar_lab.experiment import Claim, Paper
from racecar_lab.report import words
from racecar_lab.report.claim_tables import claims_table, unjudged_table
from racecar_lab.report.claims import judge
from racecar_lab.report.costs import cost_table
from racecar_lab.report.groups import gather
from racecar_lab.report.result_tables import inner_tables, results_table
from racecar_lab.report.statistics import Estimate
from tests.lab.report.records import record, runs

VALUES = [0.2, 0.23, 0.22]


def test_paper_and_ours():
    records = [record("RR", seed, {"lpips": value}, weight=5e-7) for seed, value in enumerate(VALUES)]
    records += [record("RR", 3, {"lpips": None}, weight=5e-7, status="diverged"), record("Std", 0, {"lpips": 0.5})]
    paper = [
        Paper("lpips", "A", "RR", 0.3, where={"epochs": 11}),
        Paper("lpips", "A", "RR", 0.217, 0.022, note="over all"),
        Paper("lpips", "AB", "Std", 0.1),
    ]
    std, rr = results_table("", gather(runs(records)), [("A", "lpips")], paper).rows
    assert rr["ours"].value == pytest.approx(mean(VALUES))
    assert rr["ours"].text == f"{mean(VALUES):.3f} ± {stdev(VALUES):.3f}"
    assert rr["paper"].text == "0.217 ± 0.022"
    assert rr["ours − paper"].value == pytest.approx(mean(VALUES) - 0.217)
    assert rr["ours − paper"].text == "0.000"
    assert (rr["runs"].text, rr["runs"].note) == ("3", "1 of 4 diverged")
    assert rr["λ"].text == "5e−7"
    assert rr["note"].text == "over all"
    assert (std["ours"].text, std["95 % interval"].text, std["paper"].text) == ("0.5", "–", "–")
    assert "setting" not in std  # nothing to tell
    assert "tuned" not in std


def test_the_papers_figure_for_just_this_configuration_comes_first():
    paper = [Paper("m", "A", "Std", 1.0), Paper("m", "A", "Std", 2.0, where={"epochs": 10})]
    (row,) = results_table("", gather(runs([record(metrics={"m": 1.0})])), [("A", "m")], paper).rows
    assert row["paper"].value == 2.0


def test_a_variant_that_always_diverged_is_shown():
    records = [record("Std", 0, {"m": 1.0}), record("RR", 0, {"m": None}, status="diverged")]
    _, row = results_table("", gather(runs(records)), [("A", "m")]).rows
    assert (row["ours"].text, row["runs"].text, row["runs"].note) == ("–", "0", "1 of 1 diverged")


def test_cost_is_held_against_std_in_the_same_place():
    def one(variant, seed, step, memory, device, engine="here"):
        cost = {"wall_s": 1.0, "step_s": step, "peak_memory": memory}
        return record(variant, seed, {}, cost=cost, made={"device": device, "engine": engine})

    records = [
        one("Std", 0, 1.0, 100, "GPU"), one("Std", 1, 1.2, 100, "GPU"), one("Std", 2, 9.0, 100, "GPU"),
        one("RR", 0, 2.4, 150, "GPU"), one("RR", 1, 2.4, 150, "GPU"), one("RR", 2, 30.0, None, "CPU"),
        one("Ort", 0, 1.8, 100, "GPU", "vmap"), one("WD", 7, 1.0, 100, "GPU"),
    ]  # fmt: skip
    found = {(row["variant"].text, row["device"].text): row for row in cost_table(gather(runs(records))).rows}
    assert found["RR", "GPU"]["time × Std"].value == pytest.approx((2.4 / 1.0 + 2.4 / 1.2) / 2)  # of the same seeds
    assert found["RR", "GPU"]["time × Std"].text == "2.20 ×"
    assert found["RR", "GPU"]["memory × Std"].value == pytest.approx(1.5)
    assert found["RR", "GPU"]["runs"].text == "2"
    assert found["Std", "GPU"]["time per step"].value == pytest.approx(1.2)  # a median, whatever the third one is
    assert found["Std", "GPU"]["memory × Std"].value == 1
    assert found["RR", "CPU"]["time × Std"].text == "n/a"
    assert found["RR", "CPU"]["peak memory"].text == "n/a"
    assert found["RR", "CPU"]["memory × Std"].text == "n/a"
    assert found["Ort", "GPU"]["time × Std"].text == "n/a"  # another engine
    assert found["WD", "GPU"]["time × Std"].text == "n/a"  # another seed


def test_tuned_runs_cost_what_they_cost_beside_std():
    """Step sizes do not change the time of a step: any run of Std with the same seed will do, or all of them."""

    def one(variant, seed, step, **tuned):
        return record(variant, seed, {}, cost={"wall_s": 1.0, "step_s": step, "peak_memory": None}, tuned=tuned)

    records = [one("Std", 0, 1.0), one("Std", 1, 2.0), one("RR", 0, 3.0, lr=1), one("RR", 1, 4.0, lr=1)]
    (row,) = [row for row in cost_table(gather(runs(records))).rows if row["variant"].text == "RR"]
    assert row["time × Std"].value == pytest.approx(2.5)
    both = gather(runs([*records, one("Std", 0, 5.0, lr=1)]))
    (row,) = [row for row in cost_table(both).rows if row["variant"].text == "RR"]
    assert row["time × Std"].value == pytest.approx((3 / 3 + 4 / 2) / 2)


def test_tables_of_the_runs_are_averaged():
    def plane(seed):
        return [
            {"name": name, "bins": bins, "codes": 10 * seed + bins, "i_xd": float(seed + bins), "full": seed > 0}
            for name in ("d1", "d2")
            for bins in (5, 30)
        ]

    records = [record(seed=seed, tables={"plane": plane(seed), "ceilings": {"h_x": 1.0}}) for seed in (0, 1, 2)]
    (table,) = inner_tables(gather(runs(records)))
    found = {(row["name"].text, row["bins"].text): row for row in table.rows}
    assert list(found) == [("d1", "5"), ("d1", "30"), ("d2", "5"), ("d2", "30")]
    assert found["d2", "30"]["i_xd"].value == pytest.approx(31.0)
    assert found["d2", "30"]["codes"].value == pytest.approx(40.0)
    assert found["d1", "5"]["full"].value == pytest.approx(2 / 3)
    assert found["d1", "5"]["runs"].text == "3"


def test_claims():
    values = {"Std": [0.5, 0.52, 0.48, 0.55], "RR": [0.61, 0.6, 0.6, 0.66]}
    records = [record(name, seed, {"m": v}) for name, some in values.items() for seed, v in enumerate(some)]
    records.append(record("RR", 4, {"m": None}, status="diverged"))
    findings = judge([Claim("Yes", "m", "A", "RR", "Std"), Claim("No", "m", "A", "Ort", "Std")], gather(runs(records)))
    (yes,) = claims_table(findings).rows
    assert (yes["verdict"].text, yes["pairs"].text) == ("supported", "4")
    assert yes["lost nets"].text == "RR 1 of 5 (1 to 72 %), Std 0 of 4 (0 to 60 %)"
    assert yes["could show"].value == pytest.approx(findings[0].gain.smallest(findings[0].level))
    low, high = (float(end) for end in yes["95 % interval (Holm)"].text.split(" to "))
    assert 0 < low < yes["gain"].value < high
    assert yes["gain"].value == pytest.approx(findings[0].gain.mean)
    assert yes["claim"].note == "RR against Std: m of A, higher is better"
    lost = [record("RR", seed, {"m": None}, status="diverged") for seed in range(4)]
    std = [record("Std", seed, {"m": 0.5}) for seed in range(4)]
    (none,) = unjudged_table(judge([Claim("", "m", "A", "RR", "Std")], gather(runs([*lost, *std])))).rows
    assert none["why"].text.startswith("too few runs: 0 pairs, and 3 are asked for; lost nets: RR 4 of 4 (40 to 100 %)")
    (no,) = unjudged_table(findings).rows
    assert (no["claim"].text, no["why"].text) == ("No", "not run: one side has no runs of this setting")


@pytest.mark.parametrize(
    "text, expected",
    [
        (words.number(5e-07), "5e−7"),
        (words.number(1.5e7), "1.5e7"),
        (words.number(None), "–"),
        (words.plus_minus(Estimate(5, 0.97123, 0.0123)), "0.971 ± 0.012"),
        (words.plus_minus(Estimate(5, -0.00001, 0.0123)), "0.000 ± 0.012"),
        (words.plus_minus(Estimate(5, 1.56e7, 3.81e5)), "1.56e7 ± 3.8e5"),
        (words.plus_minus(Estimate(5, 0.9, 1e-9)), "0.9 ± 1e−9"),
        (words.plus_minus(Estimate(1, 0.9, None)), "0.9"),
        (words.plus_minus(Estimate(3, 1.0, 0.0)), "1 ± 0"),
        (words.interval((-0.0031, 0.109)), "−0.003 to 0.109"),
        (words.interval((0.5, 0.5)), "0.5 to 0.5"),
        (words.p_value(0.0004), "< 0.001"),
        (words.p_value(0.0312), "0.031"),
        (words.p_value(1.0), "1.00"),
        (words.seconds(0.00123), "1.23 ms"),
        (words.seconds(3600), "1 h"),
        (words.size(3 * 2**20), "3 MiB"),
        (words.ratio(1.4189), "1.42 ×"),
        (words.count(1, "run"), "1 run"),
    ],
)
def test_words(text, expected):
    assert text == expected
