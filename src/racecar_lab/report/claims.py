"""Tests of an experiment's claims: which runs are the two sides of each, and which tests are corrected together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from racecar_lab.experiment import Claim, Paper
from racecar_lab.report.findings import Family, Finding
from racecar_lab.report.groups import Group, collect, printed_value
from racecar_lab.report.settings import Setting, only, without
from racecar_lab.report.statistics import holm
from racecar_lab.training.loss_config import LOSS
from racecar_lab.training.variants import VARIANTS

Usual = Callable[[Mapping[str, Any], str], float | None]
"""Function of a configuration and a variant's name: the λ that the experiment gives the variant by default; None if it
gives none."""


def judge(
    claims: Sequence[Claim],
    groups: Sequence[Group],
    usual: Usual = lambda config, variant: None,
    paper: Sequence[Paper] = (),
) -> list[Finding]:
    """Test every claim in every setting that has runs of both sides, configuration by configuration.

    Holm's correction is over all claims of a configuration, those that were not run among them; what else lies in the
    folder makes no verdict stricter.

    Where a variant was run with several λs, the claim is about the one that a search chose, or else about the
    default one; if that is not among them, every λ is tested. Runs with settings from a search are compared
    with such runs alone. Claims of one design are judged by its runs, and corrected by themselves.
    """
    designs = collect((tuple(claim.design.items()), claim) for claim in claims_of(claims, groups))
    findings = []
    for design, of_design in designs.items():
        members = [group for group in groups if group.matches(dict(design))]
        findings += _judge_design(of_design, members, usual, paper)
    return findings


def claims_of(claims: Sequence[Claim], groups: Sequence[Group]) -> list[Claim]:
    """The claims of those designs that have runs; all claims, if no design has any."""
    return [claim for claim in claims if any(group.matches(claim.design) for group in groups)] or list(claims)


def _judge_design(
    claims: Sequence[Claim], groups: Sequence[Group], usual: Usual, paper: Sequence[Paper]
) -> list[Finding]:
    """Test the claims of one design; in each configuration, all of them are corrected together."""
    fields = _family_fields(groups, {field for claim in claims for field in (*claim.where, *claim.against)})
    tests = [(claim, _tests(claim, fields, groups, usual, paper)) for claim in claims]
    findings = []
    for family in dict.fromkeys(test.family for _, of_claim in tests for test in of_claim) or (Family(),):
        of_family = []
        for claim, of_claim in tests:
            here = [test for test in of_claim if test.family == family]
            of_family += here or [Finding(claim, family, family.setting)]  # it was not run in this configuration
        for test, (p, level) in zip(of_family, holm([test.p for test in of_family]), strict=True):
            findings.append(replace(test, p_holm=p, level=level))
    return findings


def _family_fields(groups: Sequence[Group], named: Collection[str]) -> set[str]:
    """Names of the fields that divide runs into configurations, whose claims are corrected together. Left out are
    fields that claims name, and those that depend on them alone, as a learning rate may on the optimiser: one
    configuration goes through their values."""
    values = collect(((only(group.setting, named), name), value) for group in groups for name, value in group.setting)
    return {name for (_, name), field_values in values.items() if len(set(field_values)) > 1}


def _tests(
    claim: Claim, fields: Collection[str], groups: Sequence[Group], usual: Usual, paper: Sequence[Paper]
) -> list[Finding]:
    """The findings on one claim before Holm's correction: one for every setting that has runs of both sides."""
    sides = (
        (claim.better, claim.stage, claim.where),
        (claim.than, claim.than_stage or claim.stage, {**claim.where, **claim.against}),
    )
    fitting = [
        [group for group in groups if (group.variant, group.stage) == (variant, stage) and group.matches(where)]
        for variant, stage, where in sides
    ]
    findings = []
    for setting in dict.fromkeys(without(group.setting, claim.against) for group in groups):
        better_groups, than_groups = (_chosen(_side(side, setting, claim.against), usual) for side in fitting)
        for better, than in product(better_groups, than_groups):
            here = setting in (without(group.setting, claim.against) for group in (better, than))
            if here and bool(better.tuned) is bool(than.tuned):
                family = Family(only(setting, fields), bool(better.tuned))
                findings.append(Finding(claim, family, setting, (better, than), _printed(claim, paper, better, than)))
    return findings


def _side(groups: Sequence[Group], setting: Setting, against: Collection[str]) -> list[Group]:
    """The groups that are one side of a claim in a setting, chosen from ``groups``, which are those of that side in all
    settings. A variant without reverse pass does not depend on the reverse loss: if it was not run with the loss of
    this setting, its runs with another loss are taken, which are the same nets."""
    fitting = [group for group in groups if without(group.setting, against) == setting]
    variant = VARIANTS.get(groups[0].variant) if groups else None
    if fitting or variant is None or variant.kind == "reverse":
        return fitting
    but = {*LOSS, *against}
    others = [group for group in groups if without(group.setting, but) == without(setting, but)]
    return [group for group in others if group.setting == others[0].setting]


def _chosen(groups: Sequence[Group], usual: Usual) -> list[Group]:
    """The groups whose λ is the one that a claim is about, chosen by a search or the default. Tuned groups and others
    are treated by themselves; if none has that λ, all count."""
    chosen = []
    for tuned in (False, True):
        of_kind = [group for group in groups if bool(group.tuned) is tuned]
        chosen += [group for group in of_kind if group.weight == _wanted(group, usual)] or of_kind
    return chosen


def _wanted(group: Group, usual: Usual) -> float | None:
    return dict(group.tuned).get("weight") if group.tuned else usual(group.config, group.variant)


def _printed(claim: Claim, paper: Sequence[Paper], better: Group, than: Group) -> float | None:
    """The gain that the paper prints for a claim, or the difference of the values that it prints for both sides; None
    if it prints neither."""
    if claim.paper is not None:
        return claim.paper
    a, b = (printed_value(paper, group, metric) for group, metric in zip((better, than), claim.metrics, strict=True))
    if a is None or b is None or claim.relative or claim.margin is not None:
        return None
    return (a.value - b.value) * (1 if claim.higher else -1)
