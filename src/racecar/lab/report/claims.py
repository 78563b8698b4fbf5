"""What becomes of an experiment's claims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from racecar.lab.experiment import Claim
from racecar.lab.report.groups import Group, Groups, Setting, collect, label
from racecar.lab.report.statistics import (
    NOT,
    NOT_RUN,
    TOO_FEW,
    Corrected,
    Estimate,
    equivalence,
    estimate,
    gains,
    holm,
    same_spread,
    shares,
    verdict,
)

Usual = Callable[[Mapping[str, Any], str], float | None]
"""The coefficient that an experiment gives a variant under a configuration; None if it has none."""


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
    gain: Estimate | None = None
    """Of the paired differences, positive in the claimed direction."""
    p: float | None = None
    """Of the paired t-test, two-sided; for a margin, of the test that the difference lies within it."""
    p_holm: float | None = None
    interval: tuple[float, float] | None = None
    """Of the mean gain, corrected by Holm's method."""
    verdict: str = NOT_RUN

    @property
    def pairs(self) -> int:
        return 0 if self.gain is None else self.gain.n

    @property
    def apart(self) -> set[int]:
        """Seeds that diverged on one side and ended well on the other."""
        if self.better is None or self.than is None:
            return set()
        return (self.better.runs.keys() & set(self.than.diverged)) | (self.than.runs.keys() & set(self.better.diverged))

    @property
    def spreads(self) -> tuple[float, float, float | None] | None:
        """Standard deviations of both variants over their common seeds, and the p-value of their being the same."""
        if self.better is None or self.than is None or self.pairs < 2:
            return None
        a, b = self.better.values(self.claim.metric), self.than.values(self.claim.metric)
        seeds = a.keys() & b.keys()
        sds = [found.sd for x in (a, b) if (found := estimate([x[seed] for seed in seeds])) and found.sd is not None]
        return (sds[0], sds[1], same_spread(a, b)) if len(sds) == 2 else None


def judge(claims: Sequence[Claim], groups: Groups, usual: Usual = lambda config, variant: None) -> list[Finding]:
    """Test every claim in every setting that has runs of both sides, configuration by configuration.

    Holm's correction is over all claims of a configuration, those that were not run among them; what else lies in the
    folder makes no verdict stricter.

    Where a variant was run with several coefficients, the claim is about the one that a search chose, or else about the
    usual one; if that is not among them, every coefficient is tested. Runs with settings from a search are held against
    such runs alone.
    """
    telling = _telling(groups, {field for claim in claims for field in (*claim.where, *claim.against)})
    found = [finding for claim in claims for finding in _tests(claim, telling, groups, usual)]
    return [
        decided
        for family in dict.fromkeys(finding.family for finding in found) or (Family(),)
        for decided in _judge(claims, family, [finding for finding in found if finding.family == family])
    ]


def _telling(groups: Groups, named: Collection[str]) -> set[str]:
    """Fields that tell configurations apart. Those that claims name do not, nor those that depend on them alone, as a
    learning rate may on the optimiser: one configuration goes through their values."""
    values = collect(
        ((_only(group.setting, named), name), value) for group in groups.groups for name, value in group.setting
    )
    return {name for (_, name), some in values.items() if len(set(some)) > 1}


def _judge(claims: Sequence[Claim], family: Family, found: Sequence[Finding]) -> list[Finding]:
    """The tests of one configuration, corrected; a claim without one was not run in it."""
    tests = []
    for claim in claims:
        own = [finding for finding in found if finding.claim is claim]
        tests += own or [Finding(claim, family, family.setting)]
    corrected = holm([finding.p for finding in tests])
    return [_decide(finding, right) for finding, right in zip(tests, corrected, strict=True)]


def _tests(claim: Claim, telling: Collection[str], groups: Groups, usual: Usual) -> list[Finding]:
    found = []
    sides = (
        (claim.better, claim.stage, claim.where),
        (claim.than, claim.than_stage or claim.stage, {**claim.where, **claim.against}),
    )
    for setting in dict.fromkeys(_without(setting, claim.against) for setting in groups.settings):
        pair = [
            _chosen(
                [
                    group
                    for group in groups.of(stage=stage, variant=name)
                    if _without(group.setting, claim.against) == setting and group.matches(where)
                ],
                usual,
            )
            for name, stage, where in sides
        ]
        found += [
            _test(claim, Family(_only(setting, telling), bool(better.tuned)), setting, better, than)
            for better in pair[0]
            for than in pair[1]
            if bool(better.tuned) is bool(than.tuned)
        ]
    return found


def _without(setting: Setting, names: Collection[str]) -> Setting:
    return tuple((name, value) for name, value in setting if name not in names)


def _only(setting: Setting, names: Collection[str]) -> Setting:
    return tuple((name, value) for name, value in setting if name in names)


def _chosen(groups: list[Group], usual: Usual) -> list[Group]:
    """Of each kind, tuned or not, those with the coefficient that it should have; all, if none has it."""
    found = []
    for tuned in (False, True):
        some = [group for group in groups if bool(group.tuned) is tuned]
        wanted = [group for group in some if group.coefficient == _wanted(group, usual)]
        found += wanted or some
    return found


def _wanted(group: Group, usual: Usual) -> float | None:
    return dict(group.tuned).get("coefficient") if group.tuned else usual(group.config, group.variant)


def _test(claim: Claim, family: Family, setting: Setting, better: Group, than: Group) -> Finding:
    one, other = better.values(claim.metric), than.values(claim.metric)
    gain = estimate(shares(one, other) if claim.relative else gains(one, other, claim.higher))
    if gain is None:
        return Finding(claim, family, setting, better, than, verdict=TOO_FEW)
    p = gain.p if claim.margin is None else gain.p_within(claim.margin)
    return Finding(claim, family, setting, better, than, gain, p, verdict=TOO_FEW)


def _decide(finding: Finding, corrected: Corrected) -> Finding:
    claim, gain = finding.claim, finding.gain
    interval = None if gain is None else gain.interval(corrected.level)
    if gain is not None and interval is not None:
        if claim.margin is None:
            decided = verdict(gain.n, gain.mean, interval[0], claim.minimum_seeds)
        else:
            decided = equivalence(gain.n, gain.mean, interval, claim.margin, claim.minimum_seeds)
        finding = replace(finding, p_holm=corrected.p, interval=interval, verdict=decided)
    # What diverges on one side alone has no pair, and does not have the same effect.
    return replace(finding, verdict=NOT) if claim.margin is not None and finding.apart else finding
