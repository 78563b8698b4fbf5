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
from racecar_lab.report.verdicts import NOT_RUN, SUPPORTED, TOO_FEW, UNDECIDED, agreed, equivalence
from racecar_lab.report.verdicts import verdict as verdict_of

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
        better, than = set(self.better.lost), set(self.than.lost)
        both = self.better.seeds & self.than.seeds
        return exact_pairs(len((better - than) & both), len((than - better) & both))

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
        metric, than_metric = self.claim.metrics
        a, b = paired(self.better.values(metric), self.than.values(than_metric), self.better.clusters)
        means = [estimate(list(side.values())) for side in (a, b)]
        sds = [mean.sd for mean in means if mean is not None and mean.sd is not None]
        return (sds[0], sds[1], same_spread(a, b)) if len(sds) == 2 else None

    def decided(self, corrected: Corrected) -> Finding:
        """With its verdict, at the level that Holm's method gives it.

        A net that died is no difference of so many points: the gain is that of pairs in which both live. Where all
        pairs together would have another verdict, the claim is undecided. What diverges on one side alone has no pair,
        and cannot have the same effect.
        """
        if self.gain is None:
            return self
        verdict = self._verdict(self.gain, corrected.level)
        if self.whole is not None:
            whole = self._verdict(self.whole, corrected.level)
            verdict = whole if verdict == TOO_FEW else agreed(verdict, whole)
        if verdict == SUPPORTED and self.claim.margin is not None and self.apart:
            verdict = UNDECIDED
        return replace(
            self,
            p_holm=corrected.p,
            level=corrected.level,
            interval=self.gain.interval(corrected.level),
            whole_interval=None if self.whole is None else self.whole.interval(corrected.level),
            verdict=verdict,
        )

    def _verdict(self, gain: Gain, level: float) -> str:
        claim, interval = self.claim, gain.interval(level)
        if interval is None:
            return TOO_FEW
        if claim.margin is None:
            return verdict_of(gain.n, interval, claim.minimum_seeds)
        return equivalence(gain.n, interval, claim.margin, claim.minimum_seeds)


def measured(
    claim: Claim, family: Family, setting: Setting, better: Group, than: Group, paper: float | None
) -> Finding:
    """A claim with its gain, before it is corrected and judged."""
    dead = {*better.dead, *than.dead} if claim.fails_below is None else set()  # which is a failure, too
    whole = _gain(claim, better, than, set())
    gain = _gain(claim, better, than, dead) or whole  # no pair in which both live
    common = Finding(claim, family, setting, better, than, verdict=TOO_FEW)
    if gain is None:
        return common
    p = gain.p_within(claim.margin) if isinstance(gain, Estimate) and claim.margin is not None else gain.p
    more = whole if whole is not None and whole.n > gain.n else None
    return replace(common, gain=gain, whole=more, paper=paper, p=p)


def _gain(claim: Claim, better: Group, than: Group, without: set[Key]) -> Gain | None:
    a, b = (
        {seed: value for seed, value in group.values(metric).items() if seed not in without}
        for group, metric in zip((better, than), claim.metrics, strict=True)
    )
    if claim.fails_below is not None:
        a, b = ({**side, **dict.fromkeys(group.diverged, -math.inf)} for side, group in ((a, better), (b, than)))
        return failures(a, b, claim.fails_below)
    a, b = paired(a, b, better.clusters)
    higher = claim.higher or claim.margin is not None  # a margin is on either side: there it is how much more it is
    gain = estimate(shares(a, b, higher) if claim.relative else gains(a, b, claim.higher))
    return overlapping(gain, better.clusters)


def failures(better: Mapping[Key, float], than: Mapping[Key, float], below: float) -> PairedShares | None:
    """Pairs of which one side has a value below a bound; None if there are no pairs."""
    pairs = [(better[seed] < below, than[seed] < below) for seed in better.keys() & than.keys()]
    return PairedShares(len(pairs), pairs.count((True, False)), pairs.count((False, True))) if pairs else None
