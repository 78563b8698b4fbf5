"""A claim held against runs: its gain, its doubt, the nets it lost, what it could have shown, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from racecar_lab.experiment import Claim
from racecar_lab.report.clustered import Key, overlapping, paired
from racecar_lab.report.groups import Group, Setting, label
from racecar_lab.report.statistics import (
    Corrected,
    Estimate,
    PairedShares,
    estimate,
    exact_pairs,
    gains,
    same_spread,
    shares,
)
from racecar_lab.report.verdicts import NOT_RUN, SUPPORTED, TOO_FEW, UNDECIDED, agreed, equivalence, verdict

Gain = Estimate | PairedShares


@dataclass(frozen=True)
class Family:
    """What one configuration claims: these tests are corrected together, and no others with them."""

    setting: Setting = ()
    """What tells the configuration from others."""
    tuned: bool = False
    """Whether its settings are from a search."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (label(self.setting), "settings from a search" if self.tuned else "")))


@dataclass(frozen=True, eq=False)
class Finding:
    """A claim, held against the runs of one setting."""

    claim: Claim
    family: Family = Family()
    setting: Setting = ()
    better: Group | None = None
    than: Group | None = None
    gain: Gain | None = None
    """Of the paired differences, positive in the claimed direction, of pairs in which both nets live. Clusters are
    pairs: the mean over their seeds."""
    whole: Gain | None = None
    """The same of all pairs; None where no net of a pair is dead."""
    paper: float | None = None
    """The gain that the paper prints."""
    p: float | None = None
    """Of the paired t-test, two-sided; for a margin, of the test that the difference lies within it."""
    p_holm: float | None = None
    level: float = 0.95
    """Of the interval, corrected by Holm's method."""
    interval: tuple[float, float] | None = None
    """Of the mean gain."""
    whole_interval: tuple[float, float] | None = None
    """Of all pairs, where some have dead nets."""
    verdict: str = NOT_RUN

    @property
    def pairs(self) -> int:
        """Those that the gain is of."""
        return 0 if self.gain is None else self.gain.n

    @property
    def sides(self) -> tuple[Group, ...]:
        return tuple(group for group in (self.better, self.than) if group is not None)

    @property
    def apart(self) -> set[Key]:
        """Seeds that diverged on one side and ended well on the other."""
        if self.better is None or self.than is None:
            return set()
        return (self.better.runs.keys() & set(self.than.diverged)) | (self.than.runs.keys() & set(self.better.diverged))

    @property
    def p_lost(self) -> float | None:
        """Of McNemar's exact test that both sides lose as many nets, dead or diverged; None if no net was lost."""
        if self.better is None or self.than is None or not (self.better.lost or self.than.lost):
            return None
        one, other = set(self.better.lost), set(self.than.lost)
        both = self.better.seeds & self.than.seeds
        return exact_pairs(len((one - other) & both), len((other - one) & both))

    @property
    def smallest(self) -> float | None:
        """The smallest gain that so many pairs with this spread show in four of five cases; for a margin, none."""
        return None if self.gain is None or self.claim.margin is not None else self.gain.smallest(self.level)

    @property
    def power(self) -> float | None:
        """How often so many pairs with this spread would show the paper's gain."""
        return None if self.gain is None or self.paper is None else self.gain.power(self.paper, self.level)

    @property
    def spreads(self) -> tuple[float, float, float | None] | None:
        """Standard deviations of both variants over their common seeds, and the p-value of their being the same."""
        if self.better is None or self.than is None or self.pairs < 2:
            return None
        one, other = (side.values(metric) for side, metric in zip(self.sides, self.claim.metrics, strict=True))
        a, b = paired(one, other, self.better.clusters)
        sds = [found.sd for x in (a, b) if (found := estimate(list(x.values()))) and found.sd is not None]
        return (sds[0], sds[1], same_spread(a, b)) if len(sds) == 2 else None

    def decided(self, corrected: Corrected) -> Finding:
        """With its verdict, at the level that Holm's method gives it.

        A net that died is no difference of so many points: the gain is that of pairs in which both live. Where all
        pairs together would have another verdict, the claim is undecided. What diverges on one side alone has no pair,
        and cannot have the same effect.
        """
        if self.gain is None:
            return self
        found = replace(self, p_holm=corrected.p, level=corrected.level)
        found = replace(found, interval=self.gain.interval(corrected.level))
        said = found._verdict(self.gain)
        if self.whole is not None:
            found = replace(found, whole_interval=self.whole.interval(corrected.level))
            other = found._verdict(self.whole)
            said = other if said == TOO_FEW else agreed(said, other)
        if said == SUPPORTED and self.claim.margin is not None and self.apart:
            said = UNDECIDED
        return replace(found, verdict=said)

    def _verdict(self, gain: Gain) -> str:
        claim, interval = self.claim, gain.interval(self.level)
        if interval is None:
            return TOO_FEW
        if claim.margin is None:
            return verdict(gain.n, interval, claim.minimum_seeds)
        return equivalence(gain.n, interval, claim.margin, claim.minimum_seeds)


def measured(
    claim: Claim, family: Family, setting: Setting, better: Group, than: Group, paper: float | None
) -> Finding:
    """A claim with its gain, before it is corrected and judged."""
    dead = {*better.dead, *than.dead} if claim.fails_below is None else set()  # which is a failure, too
    whole = _gain(claim, better, than, set())
    gain = _gain(claim, better, than, dead) if dead else whole
    if gain is None:  # no pair in which both live
        gain, dead = whole, set()
    if gain is None:
        return Finding(claim, family, setting, better, than, verdict=TOO_FEW)
    p = gain.p_within(claim.margin) if isinstance(gain, Estimate) and claim.margin is not None else gain.p
    some = whole if whole is not None and whole.n > gain.n else None
    return Finding(claim, family, setting, better, than, gain, some, paper, p, verdict=TOO_FEW)


def _gain(claim: Claim, better: Group, than: Group, without: set[Key]) -> Gain | None:
    one, other = (
        {seed: value for seed, value in group.values(metric).items() if seed not in without}
        for group, metric in zip((better, than), claim.metrics, strict=True)
    )
    if claim.fails_below is not None:
        diverged = (dict.fromkeys(group.diverged, -math.inf) for group in (better, than))
        return failures({**one, **next(diverged)}, {**other, **next(diverged)}, claim.fails_below)
    one, other = paired(one, other, better.clusters)
    higher = claim.higher or claim.margin is not None  # a margin is on either side: there it is how much more it is
    found = estimate(shares(one, other, higher) if claim.relative else gains(one, other, claim.higher))
    return overlapping(found, better.clusters)


def failures(better: Mapping[Key, float], than: Mapping[Key, float], below: float) -> PairedShares | None:
    """Pairs of which one side has a value below a bound; None if there are no pairs."""
    seeds = better.keys() & than.keys()
    pairs = [(better[seed] < below, than[seed] < below) for seed in seeds]
    return PairedShares(len(pairs), pairs.count((True, False)), pairs.count((False, True))) if pairs else None
