"""What becomes of an experiment's claims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from racecar_lab.experiment import Claim, Paper
from racecar_lab.report.findings import Family, Finding, measured
from racecar_lab.report.groups import Group, Groups, Setting, collect, printed_value
from racecar_lab.report.statistics import holm
from racecar_lab.training.loss_config import LOSS
from racecar_lab.training.variants import VARIANTS

Usual = Callable[[Mapping[str, Any], str], float | None]
"""The coefficient that an experiment gives a variant under a configuration; None if it has none."""


def judge(
    claims: Sequence[Claim],
    groups: Groups,
    usual: Usual = lambda config, variant: None,
    paper: Sequence[Paper] = (),
) -> list[Finding]:
    """Test every claim in every setting that has runs of both sides, configuration by configuration.

    Holm's correction is over all claims of a configuration, those that were not run among them; what else lies in the
    folder makes no verdict stricter.

    Where a variant was run with several coefficients, the claim is about the one that a search chose, or else about the
    usual one; if that is not among them, every coefficient is tested. Runs with settings from a search are held against
    such runs alone. Claims of one design are judged by its runs, and corrected by themselves.
    """
    found = []
    for design, some in collect((tuple(claim.design.items()), claim) for claim in claims_of(claims, groups)).items():
        own = [group for group in groups.groups if group.matches(dict(design))]
        found += _judge_design(some, replace(groups, groups=own), usual, paper)
    return found


def claims_of(claims: Sequence[Claim], groups: Groups) -> list[Claim]:
    """The claims of designs that were run; all, if nothing was."""
    return [claim for claim in claims if any(group.matches(claim.design) for group in groups.groups)] or list(claims)


def _judge_design(claims: Sequence[Claim], groups: Groups, usual: Usual, paper: Sequence[Paper]) -> list[Finding]:
    telling = _telling(groups, {field for claim in claims for field in (*claim.where, *claim.against)})
    found = [finding for claim in claims for finding in _tests(claim, telling, groups, usual, paper)]
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
    return [finding.decided(right) for finding, right in zip(tests, corrected, strict=True)]


def _tests(
    claim: Claim, telling: Collection[str], groups: Groups, usual: Usual, paper: Sequence[Paper]
) -> list[Finding]:
    found = []
    sides = (
        (claim.better, claim.stage, claim.where),
        (claim.than, claim.than_stage or claim.stage, {**claim.where, **claim.against}),
    )
    fitting = [
        [group for group in groups.of(stage=stage, variant=name) if group.matches(where)]
        for name, stage, where in sides
    ]
    for setting in dict.fromkeys(_without(setting, claim.against) for setting in groups.settings):
        pair = [_chosen(_side(some, setting, claim.against), usual) for some in fitting]
        found += [
            measured(
                claim, _family(setting, telling, better), setting, better, than, _printed(claim, paper, better, than)
            )
            for better in pair[0]
            for than in pair[1]
            if bool(better.tuned) is bool(than.tuned)
            and setting in (_without(group.setting, claim.against) for group in (better, than))
        ]
    return found


def _side(some: Sequence[Group], setting: Setting, against: Collection[str]) -> list[Group]:
    """Of a variant's groups those that may be one side of a claim in a setting. A variant without reverse pass knows no
    loss: where it was not run beside this one, its runs beside another are the same nets."""
    found = [group for group in some if _without(group.setting, against) == setting]
    one = VARIANTS.get(some[0].variant) if some else None
    if found or one is None or one.kind == "reverse":
        return found
    but = {*LOSS, *against}
    others = [group for group in some if _without(group.setting, but) == _without(setting, but)]
    return [group for group in others if group.setting == others[0].setting]


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


def _family(setting: Setting, telling: Collection[str], group: Group) -> Family:
    return Family(_only(setting, telling), bool(group.tuned))


def _printed(claim: Claim, paper: Sequence[Paper], better: Group, than: Group) -> float | None:
    """The gain that the paper prints, or that of the figures that it prints for both sides."""
    if claim.paper is not None:
        return claim.paper
    one, other = (
        printed_value(paper, group, metric) for group, metric in zip((better, than), claim.metrics, strict=True)
    )
    if one is None or other is None or claim.relative or claim.margin is not None:
        return None
    return (one.value - other.value) * (1 if claim.higher else -1)
