"""Means with their uncertainty, paired differences and shares, Holm's correction, and the smallest effects that runs
could show.

The distributions are scipy's. Ours are the t-test that allows for folds with shared training data, and Holm's method,
which scipy does not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any, NamedTuple

from racecar.support.extras import need

ALPHA = 0.05
"""Significance level: maximal probability of an error in any claim of a configuration, all of them together."""
LEVEL = 1 - ALPHA
"""Confidence level of an interval without Holm's correction."""
POWER = 0.8
"""Power of a test: the probability with which the smallest effect that counts as detectable is detected."""


@dataclass(frozen=True)
class Estimate:
    """A mean, with the number of values behind it and their standard deviation."""

    n: int
    mean: float
    sd: float | None
    """Standard deviation with n − 1; None for a single value."""
    overlap: float = 0.0
    """Number added to 1/n in the variance of the mean, because the values share data: the variance of the mean is (1/n
    + overlap) times that of a value. See ``Clusters``."""

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None for a single value."""
        return None if self.sd is None else self.sd * math.sqrt(1 / self.n + self.overlap)

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """Student's confidence interval of the mean; None for a single value."""
        if self.error is None:
            return None
        half = self._quantile(level) * self.error
        return self.mean - half, self.mean + half

    def times(self, factor: float) -> Estimate:
        """The estimate in another unit: mean and standard deviation are multiplied by a factor."""
        return replace(self, mean=factor * self.mean, sd=None if self.sd is None else abs(factor) * self.sd)

    @property
    def p(self) -> float | None:
        """p-value of the two-sided t-test of the mean against 0; None for a single value."""
        return self._p_value(self.mean)

    def p_within(self, margin: float) -> float | None:
        """p-value for the claim that the mean lies within ±margin: that of two one-sided t-tests (Schuirmann 1987),
        doubled, so that it is below α exactly if Student's interval of level 1 − α lies within ±margin. None for a
        single value."""
        return self._p_value(max(0.0, margin - abs(self.mean)))

    def smallest(self, level: float = LEVEL) -> float | None:
        """The smallest true mean that as many values with this spread would show with probability 0.8; it is shown if
        Student's interval of this level excludes 0. None for a single value."""
        if self.error is None:
            return None
        inverse = need("scipy.special", "lab").nctdtrinc
        return float(inverse(self.n - 1, 1 - POWER, self._quantile(level))) * self.error

    def power(self, mean: float, level: float = LEVEL) -> float | None:
        """Probability that as many values with this spread show a true mean of this size: Student's interval of this
        level lies on its side of 0. None for a single value."""
        if not self.error:  # values without any spread leave no doubt
            return None if self.error is None else float(mean != 0)
        return float(_stats().nct.sf(self._quantile(level), self.n - 1, abs(mean) / self.error))

    def _p_value(self, distance: float) -> float | None:
        """Two-sided p-value of a t-test whose mean lies ``distance`` from the hypothesis; None for a single value."""
        if not self.error:
            return None if self.error is None else float(distance == 0)
        return 2 * float(_stats().t.sf(abs(distance) / self.error, self.n - 1))

    def _quantile(self, level: float) -> float:
        """Half the width of Student's interval of this level, in standard errors of the mean."""
        return float(_stats().t.isf((1 - level) / 2, self.n - 1))


@dataclass(frozen=True)
class PairedShares:
    """The difference between the shares of failures on the two sides of pairs, with exact tests, which are valid
    whatever the failures depend on."""

    n: int
    worse: int
    """Number of pairs in which only the side fails that is claimed to be better."""
    better: int
    """Number of pairs in which only the other side fails, which is not claimed to be better."""
    sd: None = None

    @property
    def mean(self) -> float:
        """The difference of the shares, positive if the better side fails less often."""
        return (self.better - self.worse) / self.n

    @property
    def p(self) -> float:
        """p-value of McNemar's exact test that both sides fail equally often."""
        return exact_pairs(self.worse, self.better)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Confidence interval of the difference of the shares, given how many pairs differ: Clopper and Pearson's of
        the share of those that speak for the claim. It excludes 0 exactly if McNemar's exact test of that level
        rejects."""
        differ = self.worse + self.better
        low, high = exact_share(self.better, differ, level) if differ else (0.5, 0.5)
        return (2 * low - 1) * differ / self.n, (2 * high - 1) * differ / self.n

    def smallest(self, level: float = LEVEL) -> float:
        """The smallest difference of the shares that so many pairs can show at this level, if all pairs that differ
        speak for the claim."""
        return min(1.0, math.ceil(1 - math.log2(1 - level)) / self.n)

    def power(self, mean: float, level: float = LEVEL) -> None:
        """None: the power is not known without the number of pairs that would differ."""

    def times(self, factor: float) -> Estimate:
        """The difference of the shares in another unit, multiplied by a factor, as an estimate without standard
        deviation."""
        return Estimate(self.n, factor * self.mean, None)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and standard deviation of some values; None if there are no values.

    The mean is summed in units of the largest value, as that of the published tables was: ``statistics.mean``
    would print four of those means differently, because they lie halfway between two numbers of the printed digits.
    """
    if not values:
        return None
    n, unit = len(values), max(map(abs, values)) or 1.0
    mean = values[0] if min(values) == max(values) else math.fsum(value / unit for value in values) / n * unit
    return Estimate(n, mean, float(stdev(values)) if n > 1 else None)


def gains(better: Mapping[Any, float], than: Mapping[Any, float], higher: bool, relative: bool = False) -> list[float]:
    """Paired differences between the sides ``better`` and ``than``, over the seeds that both have; positive in the
    claimed direction. With ``relative`` they are shares of the value of ``than``, where that is not 0."""
    sign = 1 if higher else -1
    pairs = [(better[seed], than[seed]) for seed in sorted(better.keys() & than.keys())]
    if relative:
        return [sign * (value / other - 1) for value, other in pairs if other != 0]
    return [sign * (value - other) for value, other in pairs]


class Corrected(NamedTuple):
    """p-value and level of a test after Holm's correction."""

    p: float | None
    level: float
    """Confidence level at which the interval of the difference excludes 0 exactly if the hypothesis of no difference is
    rejected."""


def holm(p_values: Sequence[float | None], alpha: float = ALPHA) -> list[Corrected]:
    """Holm's step-down correction (Holm 1979).

    The smallest of m p-values is held against α/m, the next against α/(m − 1), and so on up to the first that is not
    rejected; that one's level serves for all that follow. A test that could not be made (None) counts as p = 1, so
    that runs made later never make an earlier verdict stricter.
    """
    m = len(p_values)
    filled = [1.0 if p is None else p for p in p_values]
    corrected: dict[int, Corrected] = {}
    largest, share, rejecting = 0.0, alpha, True
    for rank, i in enumerate(sorted(range(m), key=filled.__getitem__)):
        if rejecting:
            share = alpha / (m - rank)
            rejecting = filled[i] < share
        largest = max(largest, min(1.0, (m - rank) * filled[i]))
        corrected[i] = Corrected(None if p_values[i] is None else largest, 1 - share)
    return [corrected[i] for i in range(m)]


def exact_share(count: int, total: int, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's exact confidence interval of a share, for ``count`` cases among ``total``."""
    low, high = _stats().binomtest(count, total).proportion_ci(level)
    return float(low), float(high)


def exact_pairs(only_first: int, only_second: int) -> float:
    """p-value of McNemar's exact test, two-sided, by how many pairs have an outcome on the first side only and on the
    second side only; 1 if there are none."""
    n = only_first + only_second
    return float(_stats().binomtest(only_first, n).pvalue) if n else 1.0


def same_spread(a: Mapping[Any, float], b: Mapping[Any, float]) -> float | None:
    """p-value of Pitman and Morgan's test that two paired samples have the same variance; None where it has no answer.

    Var(a) − Var(b) is the covariance of a + b and a − b, so their correlation is tested.
    """
    seeds = sorted(a.keys() & b.keys())
    sums, differences = ([a[seed] + sign * b[seed] for seed in seeds] for sign in (1, -1))
    if len(seeds) < 3 or any(math.isclose(min(x), max(x), rel_tol=1e-12) for x in (sums, differences)):
        return None
    return float(_stats().pearsonr(sums, differences).pvalue)


def _stats() -> Any:
    """scipy.stats, imported where it is first needed."""
    return need("scipy.stats", "lab")
