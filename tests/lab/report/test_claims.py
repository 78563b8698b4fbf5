"""What becomes of claims that one variant is better than another."""

from statistics import mean

import pytest
from scipy import stats

from racecar_lab.experiment import Claim, Paper
from racecar_lab.report.claim_tables import claims_table
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.settings import label
from racecar_lab.report.verdicts import CONTRADICTED, NOT_RUN, SUPPORTED, TOO_FEW, UNDECIDED
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
    assert second.verdict == SUPPORTED
    assert second.p == pytest.approx(truth.pvalue)
    assert second.p_holm == pytest.approx(2 * truth.pvalue)
    assert second.interval == pytest.approx(tuple(truth.confidence_interval(0.975)))
    truth = stats.ttest_rel(ORT, STD)
    assert first.verdict == UNDECIDED
    assert first.p_holm == pytest.approx(truth.pvalue)
    assert first.interval == pytest.approx(tuple(truth.confidence_interval(0.95)))


def test_direction():
    lower, higher = judge([claim(higher=False), claim()], made(Std=STD, RR=RR))
    assert (lower.verdict, higher.verdict) == (CONTRADICTED, SUPPORTED)
    assert lower.gain.mean == pytest.approx(-higher.gain.mean)
    (turned,) = judge([claim("Std", "RR", higher=False)], made(Std=STD, RR=RR))
    assert turned.verdict == SUPPORTED


def test_direction_of_shares():
    """Of an error, a share less is a gain, and stands beside the paper's: RR has a fifth more m than Std here."""
    more = {"relative": True, "paper": 0.2}
    lower, higher = judge([claim(higher=False, **more), claim(**more)], made(Std=STD, RR=RR))
    assert (lower.verdict, higher.verdict) == (CONTRADICTED, SUPPORTED)
    assert higher.gain.mean == pytest.approx(mean(one / other - 1 for one, other in zip(RR, STD, strict=True)))
    assert lower.gain.mean == -higher.gain.mean
    (less,) = judge([claim("Std", "RR", higher=False, **more)], made(Std=STD, RR=RR))
    assert less.verdict == SUPPORTED
    assert less.gain.mean == pytest.approx(mean(1 - one / other for one, other in zip(STD, RR, strict=True)))
    assert less.paper == 0.2


def test_too_few():
    few = judge([claim()], made(Std=STD, RR=RR[:2]))[0]
    assert (few.verdict, few.pairs) == (TOO_FEW, 2)
    asked = judge([claim(minimum_seeds=6)], made(Std=STD, RR=RR))[0]
    assert asked.verdict == TOO_FEW
    none = judge([claim()], made(Std=STD))[0]
    assert (none.verdict, none.pairs, none.interval) == (NOT_RUN, 0, None)
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
    assert found.sides[0].diverged == [4]


DEAD = "dead: the output is the same for every input"


def test_a_dead_net_is_an_outcome_of_its_own():
    """The gain is that of living pairs. With −0.5 among them nothing could be said, so nothing is."""
    dead = record("RR", 5, {"m": 0.05}, note=DEAD)
    plain = record("Std", 5, {"m": 0.52})
    (alone,) = judge([claim()], made(Std=STD, RR=RR))
    (found,) = judge([claim()], made([dead, plain], Std=STD, RR=RR))
    assert alone.verdict == SUPPORTED
    assert (found.gain, found.interval, found.pairs) == (alone.gain, alone.interval, 5)
    assert (found.gain_with_dead.n, found.verdict) == (6, UNDECIDED)
    assert found.interval_with_dead[0] < 0 < found.interval_with_dead[1]
    assert (alone.p_broken, found.p_broken) == (None, 1.0)
    assert alone.gain_with_dead is None


def test_a_dead_net_that_changes_nothing():
    """The other side died: both views say the same."""
    more = [record("RR", 5, {"m": 0.6}), record("Std", 5, {"m": 0.5}, note=DEAD)]
    (found,) = judge([claim()], made(more, Std=STD, RR=RR))
    assert (found.verdict, found.pairs, found.gain_with_dead.n) == (SUPPORTED, 5, 6)


def test_all_dead():
    """No living pair: all that is left is the view of all pairs."""
    found = judge([claim()], made(
        [record("RR", seed, {"m": 0.1 + 0.001 * seed}, note=DEAD) for seed in range(8)],
        Std=[0.5 + 0.01 * seed for seed in range(8)],
    ))[0]  # fmt: skip
    assert (found.verdict, found.pairs, found.gain_with_dead) == (CONTRADICTED, 8, None)
    assert found.p_broken == pytest.approx(2 / 2**8)


def test_shares_of_nets_that_fail():
    """Two humps: Std fails in 8 of 10 nets, RR in none; a mean would have an enormous spread. What diverges fails."""
    std, rr = [0.5] * 7 + [0.9, 0.9], [0.9] * 10
    lost = record("Std", 9, {}, status="diverged")
    (found,) = judge([claim(fails_below=0.75)], made([lost], Std=std, RR=rr))
    assert (found.gain.worse, found.gain.better, found.pairs) == (0, 8, 10)
    assert (found.verdict, found.p) == (SUPPORTED, pytest.approx(2 / 2**8))
    (turned,) = judge([claim("Std", "RR", fails_below=0.75)], made([lost], Std=std, RR=rr))
    assert (turned.verdict, turned.gain.mean) == (CONTRADICTED, -0.8)
    (same,) = judge([claim(fails_below=0.75)], made(Std=std, RR=std))
    assert (same.verdict, same.p, same.interval) == (UNDECIDED, 1.0, (0.0, 0.0))


def test_what_the_paper_has():
    """Its gain, and how often five pairs like these would show it."""
    paper = [Paper("m", "A", "RR", 0.9), Paper("m", "A", "Std", 0.8), Paper("m", "AB", "Ort", 0.7)]
    up, other = judge([claim(), claim("Ort")], made(Std=STD, RR=RR, Ort=ORT), paper=paper)
    assert up.paper == pytest.approx(0.1)
    assert up.power == pytest.approx(up.gain.power(0.1, up.level))
    assert other.paper is None
    assert other.power is None
    (down,) = judge([claim(higher=False)], made(Std=STD, RR=RR), paper=paper)
    assert down.paper == pytest.approx(-0.1)


def test_the_usual_weight_is_the_one_that_is_claimed_of():
    swept = [
        record("RR", seed, {"m": value + weight}, weight=weight)
        for weight in (0.1, 1.0)
        for seed, value in enumerate(RR)
    ]
    groups = made(swept, Std=STD)
    (usual,) = judge([claim()], groups, lambda config, variant: 0.1)
    assert usual.sides[0].weight == 0.1
    both = judge([claim()], groups)
    assert [found.sides[0].weight for found in both] == [0.1, 1.0]
    assert both[1].p_holm == pytest.approx(2 * both[1].p)  # two tests now


def test_tuned_runs_are_held_against_tuned_ones():
    """And the weight that the search chose counts, not the usual one."""

    def some(variant, values, weights, **tuned):
        return [
            record(variant, seed, {"m": value}, weight=one, tuned=tuned)
            for one in weights
            for seed, value in enumerate(values)
        ]

    plain = [*some("Std", STD, [None]), *some("RR", RR, [0.1, 1.0])]
    tuned = [*some("Std", ORT, [None], lr=1e-3), *some("RR", RR, [0.1, 1.0], lr=1e-2, weight=1.0)]
    found = judge([claim()], gather(runs([*plain, *tuned])), lambda config, variant: 0.1)
    pairs = [(label(one.sides[0].tuned), one.sides[0].weight, label(one.sides[1].tuned)) for one in found]
    assert pairs == [("", 0.1, ""), ("lr = 0.01, weight = 1", 1.0, "lr = 0.001")]


def test_a_usual_run_that_a_search_chose_is_held_against_tuned_ones_too():
    usual = [record("Std", seed, {"m": value}) for seed, value in enumerate(STD)]
    std = [*usual, *({**one, "tuned": {"lr": 1e-4}} for one in usual)]
    rr = [record("RR", seed, {"m": value}, tuned={"lr": 1e-2}) for seed, value in enumerate(RR)]
    (found,) = judge([claim()], gather(runs([*std, *rr])))
    assert (found.verdict, found.pairs, label(found.sides[1].tuned)) == (SUPPORTED, 5, "lr = 0.0001")


def test_a_variant_without_reverse_pass_knows_no_loss():
    """Its runs beside one loss stand against RR of another; none is counted twice, and none of another setting."""
    said = {"default": {"scale": "relative"}, "paper": {"scale": "sum"}}
    losses = {name: {**one, "gradient": "both", "reduction": "mean", "depth": 3} for name, one in said.items()}

    def some(name, values, loss, **more):
        return [record(name, seed, {"m": v}, config={**losses[loss], **more}) for seed, v in enumerate(values)]

    records = [*some("Std", STD, "default"), *some("Ort", ORT, "default"), *some("RR", STD, "default")]
    records += [*some("RR", RR, "paper"), *some("RR", ORT, "paper", depth=6)]
    found = judge([claim(), claim("Ort")], gather(runs(records)))
    told = {
        (one.claim.better, dict(one.setting)["scale"], dict(one.setting)["depth"]): one for one in found if one.pairs
    }
    assert set(told) == {("RR", "relative", 3), ("RR", "sum", 3), ("Ort", "relative", 3)}
    assert told["RR", "relative", 3].gain.mean == 0
    assert told["RR", "sum", 3].gain.mean == pytest.approx(mean(RR) - mean(STD))
    own = [1.0] * 5  # run beside the paper's loss, too, it is this one that counts there
    (again,) = judge([claim()], gather(runs([*some("Std", own, "paper"), *some("RR", RR, "paper"), *records[:5]])))
    assert again.gain.mean == pytest.approx(mean(RR) - 1)


def test_spreads():
    (found,) = judge([claim()], made(Std=STD, RR=RR[:4]))
    better, than, p = found.spreads
    assert better == pytest.approx(stats.tstd(RR[:4]))
    assert than == pytest.approx(stats.tstd(STD[:4]))  # of the common seeds
    assert 0 < p < 1


def test_stages_that_differ():
    """Fine-tuned on a new task against trained on it from scratch."""
    more = [record("Std", seed, {"m": value}, stage="B") for seed, value in enumerate(STD)]
    more += [record("RR", seed, {"m": value}, stage="AB") for seed, value in enumerate(RR)]
    groups = made(more, Std=ORT, RR=ORT)
    (found,) = judge([Claim("RR beats Std from scratch", "m", "AB", "RR", "Std", than_stage="B")], groups)
    assert found.p == pytest.approx(stats.ttest_rel(RR, STD).pvalue)
    assert (found.sides[0].stage, found.sides[1].stage) == ("AB", "B")
    (missing,) = judge([Claim("", "m", "AB", "RR", "Std")], groups)
    assert missing.verdict == NOT_RUN


def test_metrics_that_differ():
    """A score of one net against another score of another: both sides' own metric, in numbers, spreads and words."""
    seen = [record("RR", seed, {"m": value, "other": 0.0}) for seed, value in enumerate(RR)]
    seen += [record("Std", seed, {"m": 9.0, "other": value}) for seed, value in enumerate(STD)]
    (found,) = judge([claim(than_metric="other")], gather(runs(seen)))
    assert found.p == pytest.approx(stats.ttest_rel(RR, STD).pvalue)
    assert found.gain.mean == pytest.approx(mean(RR) - mean(STD))
    assert found.spreads[:2] == pytest.approx((stats.tstd(RR), stats.tstd(STD)))
    (row,) = claims_table([found]).rows
    assert "m of A against other of A" in row["claim"].note
