"""Claims and their verdicts as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    some = judged(findings)
    columns = [
        Column("claim"), Column("verdict"), Column("gain", "number"), Column("95 % interval (Holm)", "number"),
        Column("pairs", "number"), Column("could show", "number"), Column("paper's gain", "number"),
        Column("p (Holm)", "number"), Column("lost nets"), Column("sd ratio", "number"),
    ]  # fmt: skip
    rows = [
        [
            Cell(found.claim.text, note=_compared(found, setting)), _verdict(found), *_gain(found),
            number_cell(found.pairs, str), _smallest(found), _paper(found), _p(found), _lost(found), _spread(found),
        ]
        for found, setting in zip(some, telling_settings(some), strict=True)
    ]  # fmt: skip
    return Table.of("Claims in numbers", columns, rows, keep=("pairs",))


def unjudged_table(findings: Sequence[Finding]) -> Table:
    """The other claims, with the reason."""
    known = {id(one) for one in judged(findings)}
    some = [one for one in findings if id(one) not in known]
    rows = [
        [Cell(found.claim.text, note=_compared(found, ())), Cell(_why(found)), Cell(label(setting))]
        for found, setting in zip(some, telling_settings(some), strict=True)
    ]
    return Table.of("Claims that were not judged", [Column("claim"), Column("why"), Column("setting")], rows)


def _why(found: Finding) -> str:
    if found.verdict == NOT_RUN:
        return "not run: one side has no runs of this setting"
    asked, lost = max(3, found.claim.minimum_seeds), _lost(found)
    told = f"too few runs: {words.count(found.pairs, 'pair')}, and {asked} are asked for"
    return told if lost.text == words.NONE else f"{told}; lost nets: {lost.text}, {lost.note}"


def _sides(found: Finding) -> list[str]:
    """Both variants with their coefficients, and with what was tuned."""
    claim = found.claim
    return [_side(claim.better, found.better, claim.against), _side(claim.than, found.than, claim.against)]


def _side(name: str, group: Group | None, names: Iterable[str]) -> str:
    if group is None:
        return name
    fields = label(tuple((one, group.config[one]) for one in names))
    weight = "" if group.coefficient is None else words.number(group.coefficient)
    tuned = label(tuple((one, value) for one, value in group.tuned if one != "coefficient"))
    details = ", ".join(filter(None, (weight, tuned, fields)))
    return f"{name} ({details})" if details else name


def _compared(found: Finding, setting: Setting) -> str:
    claim, where = found.claim, f"; {label(setting)}" if setting else ""
    if claim.fails_below is not None:
        asked = f"share of nets below {claim.fails_below:g}"
    elif claim.margin is None:
        asked = f"{'higher' if claim.higher else 'lower'} is better"
    else:
        asked = f"within ±{100 * claim.margin:g} %" if claim.relative else f"within ±{claim.margin:g}"
    return f"{' against '.join(_sides(found))}: {_measured(claim)}, {asked}{where}"


def _measured(claim: Claim) -> str:
    """As "m of A", "m of A against B" or "m of A against n of B"."""
    one, other = f"{claim.metric} of {claim.stage}", claim.than_stage
    if claim.than_metric:
        other = f"{claim.than_metric} of {claim.than_stage or claim.stage}"
    return f"{one} against {other}" if other else one


def _verdict(found: Finding) -> Cell:
    return Cell(found.verdict, VERDICTS.index(found.verdict), "verdict")


def _gain(found: Finding) -> list[Cell]:
    """In the claim's unit; of all pairs below it, where some nets are dead."""
    of, gain, ends = unit(found.claim), found.gain, found.interval
    assert gain is not None
    assert ends is not None
    low, high = (of.factor * end for end in ends)
    whole, wide = "", ""
    if found.whole is not None and found.whole_interval is not None:
        whole = f"with dead nets {words.plus_minus(found.whole.times(of.factor))}"
        wide = words.interval((of.factor * found.whole_interval[0], of.factor * found.whole_interval[1]))
    scaled = gain.times(of.factor)
    return [
        Cell(f"{words.plus_minus(scaled)} {of.name}", scaled.mean, "number", whole),
        Cell(words.interval((low, high)), low, "number", wide),
    ]


def _smallest(found: Finding) -> Cell:
    value = found.smallest
    return number_cell(None if value is None else unit(found.claim).factor * value, lambda one: words.number(one, 2))


def _paper(found: Finding) -> Cell:
    """With how often so many pairs would show it."""
    if found.paper is None:
        return number_cell(None, str)
    value = unit(found.claim).factor * found.paper
    note = "" if found.power is None else f"shown with probability {found.power:.2f}"
    return Cell(words.signed(value), value, "number", note)


def _lost(found: Finding) -> Cell:
    """Dead or diverged nets of each side, with exact intervals of their share."""
    if found.p_lost is None:
        return Cell(words.NONE)
    told = []
    for group in found.sides:
        low, high = (round(100 * end) for end in exact_share(len(group.lost), group.total))
        told.append(f"{group.variant} {len(group.lost)} of {group.total} ({low} to {high} %)")
    return Cell(", ".join(told), note=f"p {words.p_value(found.p_lost)}, McNemar's exact test")


def _p(found: Finding) -> Cell:
    note = "" if found.p is None else f"uncorrected {words.p_value(found.p)}"
    return Cell(words.p_value(found.p_holm), found.p_holm, "number", note)


def _spread(found: Finding) -> Cell:
    """Standard deviation of the better variant over that of the other."""
    if found.spreads is None:
        return number_cell(None, str)
    better, than, p = found.spreads
    note = f"{words.number(better, 2)} and {words.number(than, 2)}" + ("" if p is None else f", p {words.p_value(p)}")
    ratio = better / than if than else None
    return Cell(words.ratio(ratio), ratio, "number", note)
