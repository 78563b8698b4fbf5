"""Claims and their verdicts as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from racecar_lab.experiment import Claim
from racecar_lab.report import words
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import Group, Setting, label
from racecar_lab.report.page_table import Cell, Column, Table, number_cell
from racecar_lab.report.statistics import exact_share
from racecar_lab.report.told import judged, telling_settings
from racecar_lab.report.units import unit
from racecar_lab.report.verdicts import NOT_RUN, VERDICTS


def claims_table(findings: Sequence[Finding]) -> Table:
    """The claims that were judged, with the numbers behind the verdicts."""
    findings = judged(findings)
    columns = [
        Column("claim"), Column("verdict"), Column("gain", "number"), Column("95 % interval (Holm)", "number"),
        Column("pairs", "number"), Column("could show", "number"), Column("paper's gain", "number"),
        Column("p (Holm)", "number"), Column("lost nets"), Column("sd ratio", "number"),
    ]  # fmt: skip
    rows = [
        [
            Cell(finding.claim.text, note=_compared(finding, setting)),
            Cell(finding.verdict, VERDICTS.index(finding.verdict), "verdict"),
            *_gain(finding),
            number_cell(finding.pairs, str),
            _scaled(finding, finding.smallest, lambda value: words.number(value, 2)),
            _paper(finding),
            _p(finding),
            _lost(finding),
            _spread(finding),
        ]
        for finding, setting in zip(findings, telling_settings(findings), strict=True)
    ]
    return Table.of("Claims in numbers", columns, rows, keep=("pairs",))


def unjudged_table(findings: Sequence[Finding]) -> Table:
    """The other claims, with the reason."""
    with_verdict = {id(finding) for finding in judged(findings)}
    findings = [finding for finding in findings if id(finding) not in with_verdict]
    rows = [
        [Cell(finding.claim.text, note=_compared(finding, ())), Cell(_why(finding)), Cell(label(setting))]
        for finding, setting in zip(findings, telling_settings(findings), strict=True)
    ]
    return Table.of("Claims that were not judged", [Column("claim"), Column("why"), Column("setting")], rows)


def _why(finding: Finding) -> str:
    if finding.verdict == NOT_RUN:
        return "not run: one side has no runs of this setting"
    needed, nets = max(3, finding.claim.minimum_seeds), _lost(finding)
    text = f"too few runs: {words.count(finding.pairs, 'pair')}, and {needed} are asked for"
    return text if nets.text == words.NONE else f"{text}; lost nets: {nets.text}, {nets.note}"


def _compared(finding: Finding, setting: Setting) -> str:
    """As "RR (0.1) against Std: test_accuracy of A, higher is better; norm = True"."""
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
    sides = f"{_side(claim.better, finding.better, claim)} against {_side(claim.than, finding.than, claim)}"
    return f"{sides}: {f'{metric} against {other}' if other else metric}, {rule}{where}"


def _side(name: str, group: Group | None, claim: Claim) -> str:
    """A variant with its λ, what was tuned, and the fields that tell the sides apart."""
    if group is None:
        return name
    fields = label(tuple((field, group.config[field]) for field in claim.against))
    weight = "" if group.weight is None else words.number(group.weight)
    tuned = label(tuple((field, value) for field, value in group.tuned if field != "weight"))
    details = ", ".join(filter(None, (weight, tuned, fields)))
    return f"{name} ({details})" if details else name


def _gain(finding: Finding) -> list[Cell]:
    """The gain and its interval in the claim's unit; of all pairs below it, where some nets are dead."""
    scale, gain, ends = unit(finding.claim), finding.gain, finding.interval
    assert gain is not None
    assert ends is not None
    low, high = (scale.factor * end for end in ends)
    whole, wide = "", ""
    if finding.whole is not None and finding.whole_interval is not None:
        whole = f"with dead nets {words.plus_minus(finding.whole.times(scale.factor))}"
        wide = words.interval((scale.factor * finding.whole_interval[0], scale.factor * finding.whole_interval[1]))
    scaled = gain.times(scale.factor)
    return [
        Cell(f"{words.plus_minus(scaled)} {scale.name}", scaled.mean, "number", whole),
        Cell(words.interval((low, high)), low, "number", wide),
    ]


def _scaled(finding: Finding, value: float | None, write: Callable[[float], str]) -> Cell:
    """A number in the claim's unit."""
    return number_cell(None if value is None else unit(finding.claim).factor * value, write)


def _paper(finding: Finding) -> Cell:
    """With how often so many pairs would show it."""
    note = "" if finding.power is None else f"shown with probability {finding.power:.2f}"
    return replace(_scaled(finding, finding.paper, words.signed), note=note)


def _lost(finding: Finding) -> Cell:
    """Dead or diverged nets of each side, with exact intervals of their share."""
    if finding.p_lost is None:
        return Cell(words.NONE)
    sides = []
    for group in finding.sides:
        low, high = (round(100 * end) for end in exact_share(len(group.lost), group.total))
        sides.append(f"{group.variant} {len(group.lost)} of {group.total} ({low} to {high} %)")
    return Cell(", ".join(sides), note=f"p {words.p_value(finding.p_lost)}, McNemar's exact test")


def _p(finding: Finding) -> Cell:
    note = "" if finding.p is None else f"uncorrected {words.p_value(finding.p)}"
    return Cell(words.p_value(finding.p_holm), finding.p_holm, "number", note)


def _spread(finding: Finding) -> Cell:
    """Standard deviation of the better variant over that of the other."""
    if finding.spreads is None:
        return number_cell(None, str)
    better, than, p = finding.spreads
    note = f"{words.number(better, 2)} and {words.number(than, 2)}" + ("" if p is None else f", p {words.p_value(p)}")
    ratio = better / than if than else None
    return Cell(words.ratio(ratio), ratio, "number", note)
