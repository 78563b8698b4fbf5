"""Which tests are corrected together: those of one configuration, of one design."""

import pytest
from scipy import stats

from racecar_lab.report.claims import judge
from racecar_lab.report.findings import Family
from racecar_lab.report.groups import gather
from racecar_lab.report.settings import label
from racecar_lab.report.verdicts import NOT_RUN, SUPPORTED
from tests.lab.report.records import record, runs
from tests.lab.report.test_claims import ORT, RR, STD, claim, made


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
    assert nowhere.verdict == NOT_RUN


def told(findings):
    return [(found.claim.text, found.verdict, found.p_holm, found.interval) for found in findings]


@pytest.mark.parametrize("variants", [("Std", "RR", "Ort"), ("Std", "RR"), ("Std",)])
@pytest.mark.parametrize("field", ["epochs", "lr"])
def test_a_short_try_changes_no_verdict(variants, field):
    """Whatever lies in the folder besides: a configuration's claims are corrected among themselves, all of them."""
    claims = [claim(), claim("Ort"), claim("RR", "Ort")]
    values = {"Std": STD, "RR": RR, "Ort": ORT}
    alone = judge(claims, made(**values))
    assert sorted(found.p_holm / found.p for found in alone)[-1] == pytest.approx(3)
    short = {"epochs": 10, "lr": 1e-4, field: 3}
    tries = [
        record(name, seed, {"m": -value}, config=short) for name in variants for seed, value in enumerate(values[name])
    ]
    for more in (tries, tries[:4]):
        usual, other = [], []
        for found in judge(claims, made(more, **values)):
            (other if dict(found.setting)[field] == 3 else usual).append(found)
        assert told(usual) == told(alone)
        assert [found.claim.text for found in other] in ([], [one.text for one in claims])


def test_what_a_search_chose_is_a_configuration_of_its_own():
    claims = [claim(), claim("Ort")]
    values = {"Std": STD, "RR": RR, "Ort": ORT}
    tuned = [
        record(name, seed, {"m": value}, tuned={"lr": 0.5})
        for name, some in values.items()
        for seed, value in enumerate(some)
    ]
    found = judge(claims, made(tuned, **values))
    assert told(found[:2]) == told(found[2:]) == told(judge(claims, made(**values)))
    assert [str(one.family) for one in found] == ["", "", "settings from a search", "settings from a search"]


def test_what_claims_name_is_one_configuration():
    """And so is what depends on it alone, here the learning rate on the net: four tests, corrected together."""
    claims = [claim(where={"net": net}) for net in ("one", "two")] + [claim("Ort", where={"net": "one"})]

    def some(net, **more):
        return [
            record(name, seed, {"m": value}, config={"net": net, **more})
            for name, values in (("Std", STD), ("RR", RR)) for seed, value in enumerate(values)
        ]  # fmt: skip

    found = judge(claims, gather(runs([*some("one", lr=1), *some("two", lr=2)])))
    assert [one.verdict for one in found] == [SUPPORTED, SUPPORTED, NOT_RUN]
    assert [one.p_holm for one in found[:2]] == pytest.approx([3 * found[0].p] * 2)
    assert {one.family for one in found} == {Family()}
    apart = judge(claims, gather(runs([*some("one", lr=1), *some("one", lr=2), *some("two", lr=2)])))
    assert [(str(one.family), one.verdict) for one in apart] == [
        ("lr = 1", SUPPORTED), ("lr = 1", NOT_RUN), ("lr = 1", NOT_RUN),
        ("lr = 2", SUPPORTED), ("lr = 2", SUPPORTED), ("lr = 2", NOT_RUN),
    ]  # fmt: skip


def test_designs_are_judged_each_by_its_own_claims():
    """Claims of a later design make none of an earlier one stricter."""
    old, new = {"lr": 1.0}, {"lr": 2.0}
    first = [claim(design=old), claim("Ort", design=old)]
    later = [claim(design=new, minimum_seeds=n) for n in range(2, 5)]
    records = {
        lr: [
            record(name, seed, {"m": value}, config={"lr": lr})
            for name, values in {"Std": STD, "RR": RR, "Ort": ORT}.items()
            for seed, value in enumerate(values)
        ]
        for lr in (1.0, 2.0)
    }
    truth = stats.ttest_rel(RR, STD).pvalue
    for some, count in (([1.0], [2]), ([2.0], [3]), ([1.0, 2.0], [2, 3])):
        findings = judge([*first, *later], gather(runs([one for lr in some for one in records[lr]])))
        assert len(findings) == sum(count)
        sure = [one.p_holm for one in findings if one.claim.better == "RR"]
        wanted = [2 * truth] * (2 in count) + [3 * truth] * 3 * (3 in count)
        assert sure == pytest.approx(wanted)
    assert len(judge([*first, *later], gather([]))) == 5
