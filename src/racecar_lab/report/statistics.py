"""Means with their doubt, paired differences and shares, Holm's correction, and what so many runs could have shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from racecar.support.extras import need

ALPHA = 0.05
"""What an experiment may err at in all its claims together."""
POWER = 0.8
"""Chance with which an effect is seen that could have been shown."""


@dataclass(frozen=True)
class Estimate:
    """A mean and what it rests on."""

    n: int
    mean: float
    sd: float | None
    """Standard deviation with n − 1; None for a single value."""
    overlap: float = 0.0
    """What the values share: the variance of their mean is (1/n + overlap) times theirs; see ``Clusters``."""

    @property
    def _of_mean(self) -> float:
        """Standard deviation of the mean, in units of ``sd``."""
        return math.sqrt(1 / self.n + self.overlap)

    def interval(self, level: float = 1 - ALPHA) -> tuple[float, float] | None:
        """Student's interval of the mean; None for a single value."""
        if self.sd is None:
            return None
        half = _t_quantile((1 - level) / 2, self.n - 1) * self.sd * self._of_mean
        return self.mean - half, self.mean + half

    def times(self, factor: float) -> Estimate:
        """The same in another unit."""
        return replace(self, mean=factor * self.mean, sd=None if self.sd is None else abs(factor) * self.sd)

    @property
    def p(self) -> float | None:
        """Of the two-sided t-test against 0. Values without any spread leave no doubt: then 0, or 1 if all are 0."""
        if self.sd is None:
            return None
        if self.sd == 0:
            return 1.0 if self.mean == 0 else 0.0
        return _t_test(self.mean / self.sd / self._of_mean, self.n - 1)

    def smallest(self, level: float = 1 - ALPHA) -> float | None:
        """The smallest mean that as many values with this spread show in four of five cases: Student's interval of that
        level then excludes 0."""
        if self.sd is None:
            return None
        least = float(
            need("scipy.special", "lab").nctdtrinc(self.n - 1, 1 - POWER, _t_quantile((1 - level) / 2, self.n - 1))
        )
        return least * self.sd * self._of_mean

    def power(self, mean: float, level: float = 1 - ALPHA) -> float | None:
        """How often as many values with this spread show such a mean: Student's interval of that level lies on its side
        of 0."""
        if self.sd is None:
            return None
        if self.sd == 0:
            return float(mean != 0)
        away = abs(mean) / self.sd / self._of_mean
        return 1 - float(
            need("scipy.special", "lab").nctdtr(self.n - 1, away, _t_quantile((1 - level) / 2, self.n - 1))
        )

    def p_within(self, margin: float) -> float | None:
        """Of the two one-sided t-tests that the mean lies within ±margin (Schuirmann 1987), doubled: below α exactly
        if Student's two-sided interval of level 1 − α lies inside."""
        if self.sd is None:
            return None
        room = margin - abs(self.mean)
        if self.sd == 0 or room <= 0:
            return 0.0 if room > 0 else 1.0
        return _t_test(room / self.sd / self._of_mean, self.n - 1)


@dataclass(frozen=True)
class PairedShares:
    """How much more often one side of pairs fails than the other, exactly, whatever the failures depend on."""

    n: int
    worse: int
    """Pairs in which the side that is claimed to be better fails alone."""
    better: int
    """Pairs in which the other side fails alone."""
    sd: None = None

    @property
    def mean(self) -> float:
        """The difference of the shares, positive if the better side fails less often."""
        return (self.better - self.worse) / self.n

    @property
    def p(self) -> float:
        return exact_pairs(self.worse, self.better)

    def interval(self, level: float = 1 - ALPHA) -> tuple[float, float]:
        """Of the difference, given how many pairs differ: Clopper and Pearson's of the share of those that speak for
        the claim. It excludes 0 exactly if McNemar's exact test of that level does."""
        differ = self.worse + self.better
        low, high = exact_share(self.better, differ, level) if differ else (0.5, 0.5)
        return (2 * low - 1) * differ / self.n, (2 * high - 1) * differ / self.n

    def smallest(self, level: float = 1 - ALPHA) -> float:
        """The smallest difference that so many pairs can show: all that differ speak for it."""
        return min(1.0, math.ceil(1 - math.log2(1 - level)) / self.n)

    def power(self, mean: float, level: float = 1 - ALPHA) -> None:
        """Not known without how many pairs would differ."""

    def times(self, factor: float) -> Estimate:
        """In another unit."""
        return Estimate(self.n, factor * self.mean, None)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and standard deviation; None if there are no values."""
    n = len(values)
    if n == 0:
        return None
    unit = max(map(abs, values)) or 1.0  # squares of losses near divergence would not fit into a float
    small = [value / unit for value in values]
    mean = math.fsum(small) / n
    if min(small) == max(small):
        return Estimate(n, values[0], 0.0 if n > 1 else None)
    return Estimate(n, mean * unit, math.sqrt(math.fsum((one - mean) ** 2 for one in small) / (n - 1)) * unit)


def gains(better: Mapping[Any, float], than: Mapping[Any, float], higher: bool) -> list[float]:
    """Paired differences over the seeds that both have, positive in the claimed direction."""
    sign = 1 if higher else -1
    return [sign * (better[seed] - than[seed]) for seed in sorted(better.keys() & than.keys())]


def shares(better: Mapping[Any, float], than: Mapping[Any, float], higher: bool = True) -> list[float]:
    """The same as shares of the other value, where that is not 0."""
    sign = 1 if higher else -1
    return [sign * (better[seed] / than[seed] - 1) for seed in sorted(better.keys() & than.keys()) if than[seed] != 0]


@dataclass(frozen=True)
class Corrected:
    """What Holm's method makes of one test among several."""

    p: float | None
    level: float
    """At which the interval of the difference excludes 0 exactly if the test is rejected."""


def holm(p_values: Sequence[float | None], alpha: float = ALPHA) -> list[Corrected]:
    """Holm's step-down correction (Holm 1979).

    The smallest of m p-values is held against α/m, the next against α/(m − 1), and so on up to the first that is not
    rejected; that one's level serves for all that follow. A test that could not be made (None) counts as p = 1, so
    that runs made later never make an earlier verdict stricter.
    """
    m = len(p_values)
    filled = [1.0 if p is None else p for p in p_values]
    found: dict[int, Corrected] = {}
    largest, share, rejecting = 0.0, alpha, True
    for rank, i in enumerate(sorted(range(m), key=filled.__getitem__)):
        if rejecting:
            share = alpha / (m - rank)
            rejecting = filled[i] < share
        largest = max(largest, min(1.0, (m - rank) * filled[i]))
        found[i] = Corrected(None if p_values[i] is None else largest, 1 - share)
    return [found[i] for i in range(m)]


def exact_share(count: int, total: int, level: float = 1 - ALPHA) -> tuple[float, float]:
    """Clopper and Pearson's exact interval of a share, of ``count`` among ``total``."""
    special, tail = need("scipy.special", "lab"), (1 - level) / 2
    low = float(special.betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(special.betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return low, high


def exact_pairs(one: int, other: int) -> float:
    """p-value of McNemar's exact test: of pairs in which only one side has an outcome, ``one`` and ``other`` of them,
    each side is as likely. Two-sided; 1 if there are none."""
    n = one + other
    return min(1.0, 2 * float(need("scipy.special", "lab").bdtr(min(one, other), n, 0.5))) if n else 1.0


def same_spread(a: Mapping[Any, float], b: Mapping[Any, float]) -> float | None:
    """p-value of Pitman and Morgan's test that two paired samples have the same variance; None where it has no answer.

    Var(a) − Var(b) is the covariance of a + b and a − b, so their correlation is tested.
    """
    seeds = sorted(a.keys() & b.keys())
    sums, differences = ([a[seed] + sign * b[seed] for seed in seeds] for sign in (1, -1))
    s, d = estimate(sums), estimate(differences)
    if len(seeds) < 3 or s is None or d is None or not s.sd or not d.sd:
        return None
    products = ((x - s.mean) / s.sd * ((y - d.mean) / d.sd) for x, y in zip(sums, differences, strict=True))
    r = math.fsum(products) / (len(seeds) - 1)
    if abs(r) >= 1 - 1e-12:
        return 0.0
    return _t_test(r * math.sqrt((len(seeds) - 2) / (1 - r * r)), len(seeds) - 2)


def _t_test(t: float, freedom: int) -> float:
    """Two-sided p-value of Student's t. (scipy.special has all that it takes, and is there much sooner than stats.)"""
    return 2 * float(need("scipy.special", "lab").stdtr(freedom, -abs(t)))


def _t_quantile(tail: float, freedom: int) -> float:
    """The t beyond which an upper tail has this share."""
    return -float(need("scipy.special", "lab").stdtrit(freedom, tail))
