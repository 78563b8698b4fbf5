"""Claims and their verdicts as tables."""

from __future__ import annotations

from collections.abc import Sequence

from racecar_lab.experiment import Claim
from racecar_lab.report import words
from racecar_lab.report.claim_words import distinct_settings, ends_of, mean_of
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import Group
from racecar_lab.report.metrics import unit
from racecar_lab.report.page_table import Cell, Table, number_cell
from racecar_lab.report.settings import Setting, label, without
from racecar_lab.report.statistics import exact_share
from racecar_lab.report.verdicts import FEWEST, NOT_RUN, VERDICTS


def claims_table(findings: Sequence[Finding]) -> Table:
    """Table of the claims that have a verdict, and the numbers behind each."""
    findings = [finding for finding in findings if finding.judged]
    rows = [
        {
            "claim": Cell(finding.claim.text, note=_compared(finding, setting)),
            "verdict": Cell(finding.verdict, VERDICTS.index(finding.verdict), "verdict"),
            "gain": _gain(finding),
            "95 % interval (Holm)": _interval(finding),
            "pairs": number_cell(finding.pairs, str),
            "could show": number_cell(_scaled(finding, finding.smallest), lambda value: words.number(value, 2)),
            "paper's gain": _paper(finding),
            "p (Holm)": _p(finding),
            "lost nets": _broken(finding),
            "sd ratio": _spread(finding),
        }
        for finding, setting in zip(findings, distinct_settings(findings), strict=True)
    ]
    return Table.of("Claims in numbers", rows, keep=("pairs",))


def unjudged_table(findings: Sequence[Finding]) -> Table:
    """Table of the claims that have no verdict, with the reason."""
    findings = [finding for finding in findings if not finding.judged]
    rows = [
        {
            "claim": Cell(finding.claim.text, note=_compared(finding, ())),
            "why": Cell(_why(finding)),
            "setting": Cell(label(setting)),
        }
        for finding, setting in zip(findings, distinct_settings(findings), strict=True)
    ]
    return Table.of("Claims that were not judged", rows)


def _why(finding: Finding) -> str:
    if finding.verdict == NOT_RUN:
        return "not run: one side has no runs of this setting"
    needed, nets = max(FEWEST, finding.claim.minimum_seeds), _broken(finding)
    text = f"too few runs: {words.count(finding.pairs, 'pair')}, and {needed} are asked for"
    return text if nets.text == words.NONE else f"{text}; lost nets: {nets.text}, {nets.note}"


def _compared(finding: Finding, setting: Setting) -> str:
    """The two sides of a claim in words, such as "RR (0.1) against Std: test_accuracy of A, higher is better; norm =
    True"."""
    claim, where = finding.claim, f"; {label(setting)}" if setting else ""
    if claim.fails_below is not None:
        rule = f"share of nets below {claim.fails_below:g}"
    elif claim.margin is None:
        rule = f"{'higher' if claim.higher else 'lower'} is better"
    else:
        rule = f"within ±{100 * claim.margin:g} %" if claim.relative else f"within ±{claim.margin:g}"
    metric, other = f"{claim.metric} of {claim.stage}", claim.than_stage
    if claim.than_metric:
        other = f"{claim.than_metric} of {claim.than_stage or claim.stage}"
    better, than = finding.sides or (None, None)
    sides = f"{_side(claim.better, better, claim)} against {_side(claim.than, than, claim)}"
    return f"{sides}: {f'{metric} against {other}' if other else metric}, {rule}{where}"


def _side(name: str, group: Group | None, claim: Claim) -> str:
    """One side of a claim in words: the variant with its λ, its settings from a search, and the fields in which the
    sides differ."""
    if group is None:
        return name
    weight = "" if group.weight is None else words.number(group.weight)
    fields = tuple((field, group.config[field]) for field in claim.against)
    details = ", ".join(filter(None, (weight, label(without(group.tuned, ("weight",))), label(fields))))
    return f"{name} ({details})" if details else name


def _gain(finding: Finding) -> Cell:
    """A cell with the gain; its note has the gain of all pairs, if some have dead nets."""
    scale, of_all = unit(finding.claim), finding.gain_with_dead
    assert finding.gain is not None
    note = "" if of_all is None else f"with dead nets {words.plus_minus(of_all.times(scale.factor))}"
    text = f"{words.plus_minus(finding.gain.times(scale.factor))} {scale.name}"
    return Cell(text, mean_of(finding), "number", note)


def _interval(finding: Finding) -> Cell:
    scale, of_all = unit(finding.claim).factor, finding.interval_with_dead
    note = "" if of_all is None else words.interval((scale * of_all[0], scale * of_all[1]))
    return Cell(words.interval(ends_of(finding)), ends_of(finding)[0], "number", note)


def _scaled(finding: Finding, value: float | None) -> float | None:
    """A gain or other difference in the unit of the claim."""
    return None if value is None else unit(finding.claim).factor * value


def _paper(finding: Finding) -> Cell:
    """A cell with the paper's gain; its note has the probability that so many pairs would show it."""
    note = "" if finding.power is None else f"shown with probability {finding.power:.2f}"
    return number_cell(_scaled(finding, finding.paper), words.signed, note)


def _broken(finding: Finding) -> Cell:
    """A cell with the number of dead or diverged nets on each side, and exact intervals of their share."""
    if finding.p_broken is None:
        return Cell(words.NONE)
    sides = []
    for group in finding.sides or ():
        count, total = len(group.broken), len(group.all_runs)
        low, high = (round(100 * end) for end in exact_share(count, total))
        sides.append(f"{group.variant} {count} of {total} ({low} to {high} %)")
    return Cell(", ".join(sides), note=f"p {words.p_value(finding.p_broken)}, McNemar's exact test")


def _p(finding: Finding) -> Cell:
    note = "" if finding.p is None else f"uncorrected {words.p_value(finding.p)}"
    return number_cell(finding.p_holm, words.p_value, note)


def _spread(finding: Finding) -> Cell:
    """A cell with the standard deviation of the better variant divided by that of the other."""
    if finding.spreads is None:
        return number_cell(None, str)
    better, than, p = finding.spreads
    note = f"{words.number(better, 2)} and {words.number(than, 2)}" + ("" if p is None else f", p {words.p_value(p)}")
    return number_cell(better / than if than else None, words.ratio, note)
