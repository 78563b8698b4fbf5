"""Statistics against definitions, against examples worked by hand, and against what they promise in the long run."""

import math
import random
from statistics import correlation, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from racecar_lab.report.statistics import (
    Estimate,
    PairedShares,
    estimate,
    exact_pairs,
    exact_share,
    gains,
    holm,
    same_spread,
)
from racecar_lab.report.verdicts import SUPPORTED, verdict


def sample(seed: int, n: int, mean: float = 0.0, sd: float = 1.0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(mean, sd) for _ in range(n)]


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_the_paired_test_is_scipys(n):
    a, b = sample(n, n, 1.0), sample(n + 100, n, 0.4, 2.0)
    found = estimate(gains(dict(enumerate(a)), dict(enumerate(b)), higher=True))
    truth = stats.ttest_rel(a, b)
    assert found.n == n
    assert found.p == pytest.approx(truth.pvalue, rel=1e-9)
    for level in (0.95, 0.99, 1 - 0.05 / 7):
        assert found.interval(level) == pytest.approx(tuple(truth.confidence_interval(level)), rel=1e-9)
    assert found.sd == pytest.approx(stats.tstd([x - y for x, y in zip(a, b, strict=True)]))


def test_pairs_are_those_that_both_have():
    better, than = {0: 1.0, 1: 2.0, 3: 5.0}, {1: 1.5, 2: 9.0, 3: 6.0}
    assert gains(better, than, higher=True) == [0.5, -1.0]
    assert gains(better, than, higher=False) == [-0.5, 1.0]
    assert gains(better, {}, higher=True) == []


def test_edge_cases():
    assert estimate([]) is None
    alone = estimate([0.3])
    assert alone == Estimate(1, 0.3, None)
    assert alone.p is None
    assert alone.interval() is None
    same = estimate([0.1, 0.1, 0.1])
    assert same == Estimate(3, 0.1, 0.0)  # exactly: 3 × 0.1 / 3 is not 0.1 in floats
    assert same.p == 0.0
    assert same.interval() == (0.1, 0.1)
    assert estimate([0.0, 0.0]).p == 1.0
    huge = estimate([1e300, -1e300, 1e300])
    assert huge.mean == pytest.approx(1e300 / 3)
    assert math.isfinite(huge.sd)
    assert estimate([1e-300, 3e-300]).sd == pytest.approx(math.sqrt(2) * 1e-300)


def test_holm_by_hand():
    """Four p-values against 0.05/4, 0.05/3, 0.05/2, 0.05/1: the first two are rejected, the third is not."""
    found = holm([0.030, 0.004, 0.04, 0.015])
    assert [one.p for one in found] == pytest.approx([0.06, 0.016, 0.06, 0.045])
    levels = [1 - 0.05 / 2, 1 - 0.05 / 4, 1 - 0.05 / 2, 1 - 0.05 / 3]
    assert [one.level for one in found] == pytest.approx(levels)


def test_holm_stays_at_the_first_that_is_not_rejected():
    """0.02 > 0.05/3: from there on the level stays, although 0.04 < 0.05."""
    found = holm([0.02, 0.04, 0.03])
    assert [one.level for one in found] == pytest.approx([1 - 0.05 / 3] * 3)
    assert [one.p for one in found] == pytest.approx([0.06, 0.06, 0.06])


def test_holm_counts_tests_that_could_not_be_made():
    one, missing = holm([0.03, None])
    assert one.p == pytest.approx(0.06)
    assert one.level == pytest.approx(0.975)
    assert missing.p is None
    assert holm([]) == []
    assert [one.p for one in holm([0.7, 0.6])] == [1.0, 1.0]


differences = st.lists(st.lists(st.floats(-10, 10), min_size=3, max_size=8), min_size=1, max_size=6)


@given(differences)
def test_interval_and_p_value_say_the_same(families):
    """The corrected interval excludes 0 exactly where the corrected p-value is below 5 %."""
    found = [estimate(values) for values in families]
    for one, right in zip(found, holm([one.p for one in found]), strict=True):
        low, high = one.interval(right.level)
        if abs(right.p - 0.05) > 1e-6:
            assert (low > 0 or high < 0) == (right.p < 0.05)


def test_intervals_cover_the_mean_in_95_of_100_samples():
    times = 2000
    covered = sum(low <= 3.0 <= high for low, high in (estimate(sample(i, 5, 3.0)).interval() for i in range(times)))
    assert covered / times == pytest.approx(0.95, abs=0.015)  # 3 standard errors


def test_false_verdicts_are_rare():
    """Four claims, none of them true: one is "supported" in at most 5 of 100 experiments, in fact half of that."""
    times, wrong = 1500, 0
    for i in range(times):
        found = [estimate(sample(4 * i + j, 6)) for j in range(4)]
        corrected = holm([one.p for one in found])
        decided = [verdict(one.n, one.interval(right.level)) for one, right in zip(found, corrected, strict=True)]
        wrong += SUPPORTED in decided
    assert 0.01 < wrong / times < 0.04


def chance_of_an_interval_above_0(n: int, effect: float, edge: float) -> float:
    """Of Student's interval of ``edge`` standard errors, for a true mean of so many standard deviations: over the
    variance that a sample may have, which is a chi-square, by the normal distribution of its mean."""

    def at(ratio: float) -> float:
        return stats.norm.sf(edge * ratio**0.5 - effect * n**0.5) * stats.chi2.pdf(ratio * (n - 1), n - 1) * (n - 1)

    return integrate.quad(at, 0, 40, limit=500, points=[0.01, 0.1, 0.5, 1, 2, 5])[0]


@pytest.mark.parametrize("n, level", [(3, 0.95), (5, 0.95), (10, 0.995), (40, 0.99)])
def test_power(n, level):
    """By integration over the spread that a sample may have."""
    found = Estimate(n, 0.0, 2.0)
    edge = stats.t.ppf((1 + level) / 2, n - 1)
    for mean in (0.3, 1.5, -4.0):
        truth = chance_of_an_interval_above_0(n, abs(mean) / 2, edge)
        assert found.power(mean, level) == pytest.approx(truth, abs=1e-6)
    assert found.power(found.smallest(level), level) == pytest.approx(0.8, abs=1e-6)
    assert found.power(0.0) == pytest.approx(0.025)


def test_power_in_made_up_experiments():
    """One effect, 1000 times: as often as was said its interval lies above 0. (Each sample's own spread is another one,
    so that the spread of the world is what counts.)"""
    effect = Estimate(8, 0.0, 1.0).smallest()
    seen = sum(estimate(sample(i, 8, effect)).interval()[0] > 0 for i in range(1000))
    assert seen / 1000 == pytest.approx(0.8, abs=0.04)  # 3 standard errors


def test_nothing_to_doubt():
    assert Estimate(3, 0.5, 0.0).smallest() == 0
    assert Estimate(3, 0.5, 0.0).power(0.1) == 1
    assert Estimate(3, 0.5, 0.0).power(0.0) == 0
    assert Estimate(1, 0.5, None).smallest() is None
    assert Estimate(1, 0.5, None).power(0.1) is None
    assert Estimate(4, 0.5, 0.1).times(-100) == Estimate(4, -50.0, 10.0)


def tail(count: int, total: int, share: float) -> float:
    """Chance of at least ``count`` among ``total``, each with a chance of ``share``."""
    return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count, total + 1))


@pytest.mark.parametrize("count, total", [(0, 5), (1, 5), (5, 5), (3, 100), (50, 100)])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_an_interval_of_a_share_leaves_half_of_the_rest_on_each_side(count, total, level):
    """At its lower end so many or more are as rare as (1 − level)/2, at its upper end so many or fewer."""
    low, high = exact_share(count, total, level)
    assert tail(count, total, low) == pytest.approx((1 - level) / 2) if count else low == 0
    assert tail(count + 1, total, high) == pytest.approx((1 + level) / 2) if count < total else high == 1


@pytest.mark.parametrize("first, second", [(0, 0), (1, 0), (0, 5), (3, 3), (2, 9), (10, 0)])
def test_pairs_by_tosses_of_a_coin(first, second):
    assert exact_pairs(first, second) == pytest.approx(min(1, 2 * tail(max(first, second), first + second, 0.5)))


def test_spreads_are_compared_as_pitman_and_morgan_do():
    """By Morgan's formula, which has the ratio of the variances and the correlation of the samples."""
    a, b = sample(1, 10, sd=1.0), sample(2, 10, sd=3.0)
    ratio, r = variance(a) / variance(b), correlation(a, b)
    t = (ratio - 1) * math.sqrt(8 / (4 * ratio * (1 - r**2)))
    found = same_spread(dict(enumerate(a)), dict(enumerate(b)))
    assert found == pytest.approx(2 * stats.t.sf(abs(t), 8), rel=1e-9)
    assert found < 0.05


def test_spreads_that_cannot_be_compared():
    assert same_spread({0: 1.0, 1: 2.0}, {0: 1.0, 1: 3.0}) is None
    assert same_spread({0: 1.0, 1: 2.0, 2: 3.0}, {0: 1.0, 1: 2.0, 2: 3.0}) is None
    assert same_spread({0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.2, 1: 0.3, 2: 0.4}) is None, "the difference is always 0.1"
    assert same_spread({0: 1.0, 1: 2.0, 2: 3.0}, {0: 5.0, 1: 5.0, 2: 5.0}) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("worse, better", [(0, 0), (0, 6), (1, 9), (5, 5), (12, 3)])
def test_interval_and_test_of_paired_shares_say_the_same(worse, better):
    """At every level: the interval excludes 0 exactly if the exact test rejects."""
    found = PairedShares(40, worse, better)
    assert found.mean == pytest.approx((better - worse) / 40)
    for level in (0.5, 0.9, 0.95, 0.99, 0.999):
        low, high = found.interval(level)
        assert low <= found.mean <= high
        assert (low > 0 or high < 0) == (found.p < 1 - level)


def test_the_smallest_difference_of_shares():
    """Six pairs that all speak for it have p = 2/64, five 2/32."""
    assert PairedShares(100, 0, 0).smallest() == 0.06
    assert PairedShares(100, 0, 6).p < 0.05 < PairedShares(100, 0, 5).p
    assert PairedShares(3, 0, 0).smallest() == 1
