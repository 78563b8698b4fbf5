"""A finding, which is a claim tested on runs: its gain and interval, the nets that broke, the effect that it could have
shown, and its verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from racecar_lab.experiment import Claim
from racecar_lab.report.clustered import Key, overlapping, paired
from racecar_lab.report.groups import Group
from racecar_lab.report.settings import Setting, label
from racecar_lab.report.statistics import LEVEL, Estimate, PairedShares, estimate, exact_pairs, gains, same_spread
from racecar_lab.report.verdicts import NOT_RUN, SUPPORTED, TOO_FEW, UNDECIDED, verdict

Gain = Estimate | PairedShares


@dataclass(frozen=True)
class Family:
    """A configuration whose claims are one family of tests: Holm's correction is over all of these, and over no
    others."""

    setting: Setting = ()
    """Names and values of the fields that distinguish the configuration from others."""
    tuned: bool = False
    """True if its settings are from a search."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (label(self.setting), "settings from a search" if self.tuned else "")))


@dataclass(frozen=True, eq=False)
class Finding:
    """A claim, tested on the runs of one setting."""

    claim: Claim
    family: Family = Family()
    setting: Setting = ()
    sides: tuple[Group, Group] | None = None
    """Runs of the variant that is claimed to be better, and runs of the other; None: the claim was not run in this
    setting."""
    paper: float | None = None
    """The gain that the paper prints; None: it prints none."""
    p_holm: float | None = None
    """p-value after Holm's correction; None: the claim could not be tested."""
    level: float = LEVEL
    """Confidence level of the gain's interval, corrected by Holm's method."""

    @cached_property
    def gain(self) -> Gain | None:
        """Mean of the paired differences between both sides, positive in the claimed direction. A pair is a seed; if
        there are clusters, a pair is a cluster, with the means over its seeds. Pairs with a dead net are left out,
        because the size of such a difference says nothing; if no pair is left, all count. In a claim on failures dead
        nets count, too."""
        if self.sides is None or self.claim.fails_below is not None:  # a dead net is a failure, too
            return self._all_pairs
        better, than = self.sides
        return self._gain({*better.dead, *than.dead}) or self._all_pairs

    @cached_property
    def gain_with_dead(self) -> Gain | None:
        """The gain of all pairs, including those with a dead net; None if there are no such pairs."""
        pairs = self._all_pairs
        return pairs if pairs is not None and pairs.n > self.pairs else None

    @cached_property
    def _all_pairs(self) -> Gain | None:
        return self._gain(set())

    def _gain(self, without: set[Key]) -> Gain | None:
        """The gain (mean paired difference) without the runs whose keys (seed, or cluster and seed) are in ``without``;
        None if no pair is left."""
        if self.sides is None:
            return None
        claim, clusters = self.claim, self.sides[0].clusters
        a, b = (
            {key: value for key, value in group.values(metric).items() if key not in without}
            for group, metric in zip(self.sides, claim.metrics, strict=True)
        )
        if claim.fails_below is not None:
            a, b = ({**values, **dict.fromkeys(group.diverged, -math.inf)}
                    for values, group in zip((a, b), self.sides, strict=True))  # fmt: skip
            fails = [(a[key] < claim.fails_below, b[key] < claim.fails_below) for key in a.keys() & b.keys()]
            return PairedShares(len(fails), fails.count((True, False)), fails.count((False, True))) if fails else None
        a, b = paired(a, b, clusters)
        higher = claim.higher or (claim.relative and claim.margin is not None)  # a margin is on either side
        return overlapping(estimate(gains(a, b, higher, claim.relative)), clusters)

    @property
    def pairs(self) -> int:
        """Number of pairs (seeds, or clusters) that the gain is the mean over."""
        return 0 if self.gain is None else self.gain.n

    @cached_property
    def p(self) -> float | None:
        """p-value of the gain before Holm's correction: of the two-sided paired t-test, for a margin of the test that
        the difference lies within it, for a claim on failures of McNemar's exact test."""
        if isinstance(self.gain, Estimate) and self.claim.margin is not None:
            return self.gain.p_within(self.claim.margin)
        return None if self.gain is None else self.gain.p

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Confidence interval of the gain, at the level of Holm's correction; None if there is none."""
        return None if self.gain is None else self.gain.interval(self.level)

    @cached_property
    def interval_with_dead(self) -> tuple[float, float] | None:
        """Confidence interval of the gain of all pairs, including those with a dead net; None if there are no such
        pairs."""
        return None if self.gain_with_dead is None else self.gain_with_dead.interval(self.level)

    @cached_property
    def verdict(self) -> str:
        """The verdict on the claim. It is undecided if all pairs together would have another verdict than those in
        which both nets live; and a claim of equal effect is not supported if a seed diverged on one side alone, which
        has no pair."""
        if self.sides is None:
            return NOT_RUN
        claim = self.claim
        decided = verdict(self.pairs, self.interval, claim.minimum_seeds, claim.margin)
        if self.gain_with_dead is not None:
            of_all = verdict(self.gain_with_dead.n, self.interval_with_dead, claim.minimum_seeds, claim.margin)
            decided = decided if decided == of_all else of_all if decided == TOO_FEW else UNDECIDED
        return UNDECIDED if decided == SUPPORTED and claim.margin is not None and self.diverged_alone else decided

    @property
    def judged(self) -> bool:
        """True if there were enough runs for a verdict."""
        return self.verdict not in (TOO_FEW, NOT_RUN)

    @property
    def diverged_alone(self) -> set[Key]:
        """Keys (seed, or cluster and seed) of the runs that diverged on one side and ended well on the other."""
        if self.sides is None:
            return set()
        better, than = self.sides
        return (better.runs.keys() & set(than.diverged)) | (than.runs.keys() & set(better.diverged))

    @property
    def p_broken(self) -> float | None:
        """p-value of McNemar's exact test that as many nets are dead or diverged on one side as on the other; None if
        no net is."""
        if self.sides is None or not any(group.broken for group in self.sides):
            return None
        better, than = (set(group.broken) for group in self.sides)
        both = self.sides[0].all_runs.keys() & self.sides[1].all_runs.keys()
        return exact_pairs(len((better - than) & both), len((than - better) & both))

    @property
    def smallest(self) -> float | None:
        """The smallest true gain that so many pairs with this spread would show with probability 0.8; None for a claim
        with a margin."""
        return None if self.gain is None or self.claim.margin is not None else self.gain.smallest(self.level)

    @property
    def power(self) -> float | None:
        """Probability that so many pairs with this spread would show the paper's gain; None if the paper prints none,
        or the power cannot be computed."""
        return None if self.gain is None or self.paper is None else self.gain.power(self.paper, self.level)

    @cached_property
    def spreads(self) -> tuple[float, float, float | None] | None:
        """Standard deviations of the metric on both sides, over the seeds (or clusters) that both have, and the p-value
        of the test that they are equal. None if there are fewer than two pairs."""
        if self.sides is None or self.pairs < 2:
            return None
        first, second = (group.values(metric) for group, metric in zip(self.sides, self.claim.metrics, strict=True))
        a, b = paired(first, second, self.sides[0].clusters)
        means = [estimate(list(side.values())) for side in (a, b)]
        sds = [mean.sd for mean in means if mean is not None and mean.sd is not None]
        return (sds[0], sds[1], same_spread(a, b)) if len(sds) == 2 else None
