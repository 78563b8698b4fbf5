"""What becomes of claims."""

import pytest
from scipy import stats

from racecar.lab.experiment import Claim
from racecar.lab.report.claims import judge
from racecar.lab.report.groups import gather, label
from racecar.lab.report.statistics import HOLDS, IN_PART, NOT, TOO_FEW
from tests.lab.report.records import record, runs

STD = [0.50, 0.52, 0.48, 0.55, 0.51]
RR = [0.61, 0.60, 0.60, 0.66, 0.60]
ORT = [0.53, 0.49, 0.52, 0.56, 0.50]


def made(more=(), **variants):
    found = [record(name, seed, {"m": value}) for name, values in variants.items() for seed, value in enumerate(values)]
    return gather(runs([*found, *more]))


def claim(better="RR", than="Std", **more):
    return Claim(f"{better} beats {than}", "m", "A", better, than, **more)


def test_by_scipy():
    """Two claims: the surer one is held against 0.05/2, the other against 0.05."""
    first, second = judge([claim("Ort"), claim("RR")], made(Std=STD, RR=RR, Ort=ORT))
    truth = stats.ttest_rel(RR, STD)
    assert second.verdict == HOLDS
    assert second.p == pytest.approx(truth.pvalue)
    assert second.p_holm == pytest.approx(2 * truth.pvalue)
    assert second.interval == pytest.approx(tuple(truth.confidence_interval(0.975)))
    truth = stats.ttest_rel(ORT, STD)
    assert first.verdict == IN_PART
    assert first.p_holm == pytest.approx(truth.pvalue)
    assert first.interval == pytest.approx(tuple(truth.confidence_interval(0.95)))


def test_direction():
    lower, higher = judge([claim(higher=False), claim()], made(Std=STD, RR=RR))
    assert (lower.verdict, higher.verdict) == (NOT, HOLDS)
    assert lower.gain.mean == pytest.approx(-higher.gain.mean)
    (turned,) = judge([claim("Std", "RR", higher=False)], made(Std=STD, RR=RR))
    assert turned.verdict == HOLDS


def test_too_few():
    few = judge([claim()], made(Std=STD, RR=RR[:2]))[0]
    assert (few.verdict, few.pairs) == (TOO_FEW, 2)
    asked = judge([claim(minimum_seeds=6)], made(Std=STD, RR=RR))[0]
    assert asked.verdict == TOO_FEW
    none = judge([claim()], made(Std=STD))[0]
    assert (none.verdict, none.pairs, none.interval) == (TOO_FEW, 0, None)
    lone = judge([claim()], made(Std=STD, RR=RR[:1]))[0]
    assert (lone.verdict, lone.pairs, lone.p) == (TOO_FEW, 1, None)


def test_runs_made_later_make_no_verdict_stricter():
    """A claim without runs is counted from the beginning."""
    claims = [claim(), claim("Ort")]
    before, _ = judge(claims, made(Std=STD, RR=RR))
    after, _ = judge(claims, made(Std=STD, RR=RR, Ort=ORT))
    assert before.p_holm == after.p_holm
    assert before.interval == after.interval


def test_diverged_runs_are_no_pairs():
    wild = record("RR", 4, {"m": 0.9}, status="diverged")
    (found,) = judge([claim()], made([wild], Std=STD, RR=RR[:4]))
    assert found.pairs == 4
    assert found.better.diverged == (4,)


def test_the_usual_coefficient_is_the_one_that_is_claimed_of():
    swept = [
        record("RR", seed, {"m": value + weight}, coefficient=weight)
        for weight in (0.1, 1.0)
        for seed, value in enumerate(RR)
    ]
    groups = made(swept, Std=STD)
    (usual,) = judge([claim()], groups, lambda config, variant: 0.1)
    assert usual.better.coefficient == 0.1
    both = judge([claim()], groups)
    assert [found.better.coefficient for found in both] == [0.1, 1.0]
    assert both[1].p_holm == pytest.approx(2 * both[1].p)  # two tests now


def test_tuned_runs_are_held_against_tuned_ones():
    """And the coefficient that the search chose counts, not the usual one."""

    def some(variant, values, coefficients, **tuned):
        return [
            record(variant, seed, {"m": value}, coefficient=one, tuned=tuned)
            for one in coefficients
            for seed, value in enumerate(values)
        ]

    plain = [*some("Std", STD, [None]), *some("RR", RR, [0.1, 1.0])]
    tuned = [*some("Std", ORT, [None], lr=1e-3), *some("RR", RR, [0.1, 1.0], lr=1e-2, coefficient=1.0)]
    found = judge([claim()], gather(runs([*plain, *tuned])), lambda config, variant: 0.1)
    pairs = [(label(one.better.tuned), one.better.coefficient, label(one.than.tuned)) for one in found]
    assert pairs == [("", 0.1, ""), ("coefficient = 1, lr = 0.01", 1.0, "lr = 0.001")]


def test_a_usual_run_that_a_search_chose_is_held_against_tuned_ones_too():
    config = {"epochs": 10, "lr": 1e-4}
    also = [{"config": config, "tuned": {"lr": 1e-4}}]
    std = [record("Std", seed, {"m": value}, also=also) for seed, value in enumerate(STD)]
    rr = [record("RR", seed, {"m": value}, tuned={"lr": 1e-2}) for seed, value in enumerate(RR)]
    (found,) = judge([claim()], gather(runs([*std, *rr])))
    assert (found.verdict, found.pairs, label(found.than.tuned)) == (HOLDS, 5, "lr = 0.0001")


def test_every_setting_is_a_test_of_its_own():
    records = [
        record(variant, seed, {"m": value}, config={"net": net, "lr": lr})
        for net, lr in (("one", 1), ("two", 1), ("two", 2))
        for variant, values in (("Std", STD), ("RR", RR))
        for seed, value in enumerate(values)
    ]
    groups = gather(runs(records))
    assert [label(found.setting) for found in judge([claim()], groups)] == [
        "net = one, lr = 1", "net = two, lr = 1", "net = two, lr = 2"
    ]  # fmt: skip
    assert len(judge([claim(where={"net": "two"})], groups)) == 2
    (nowhere,) = judge([claim(where={"net": "three"})], groups)
    assert nowhere.verdict == TOO_FEW


def test_spreads():
    (found,) = judge([claim()], made(Std=STD, RR=RR[:4]))
    better, than, p = found.spreads
    assert better == pytest.approx(stats.tstd(RR[:4]))
    assert than == pytest.approx(stats.tstd(STD[:4]))  # of the common seeds
    assert 0 < p < 1
