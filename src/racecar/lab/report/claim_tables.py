"""Claims and their verdicts as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from racecar.lab.report import words
from racecar.lab.report.claims import Finding
from racecar.lab.report.groups import Group, label
from racecar.lab.report.page_table import Cell, Column, Table, mean_cell, number_cell
from racecar.lab.report.statistics import VERDICTS

_GAIN = (Column("gain", "number"), Column("95 % interval (Holm)", "interval"))


def overview(findings: Sequence[tuple[str, str, Finding]]) -> Table:
    """All claims of a page, each with the link and the name of its experiment."""
    columns = [Column("experiment"), Column("claim"), Column("verdict"), *_GAIN, Column("pairs", "number")]
    tests = Counter((id(found.claim), found.setting) for _, _, found in findings)
    rows = [
        [
            Cell(name, kind="word", link=link), _claim(found, tests[id(found.claim), found.setting] > 1),
            _verdict(found), *_gain(found), _pairs(found),
        ]
        for link, name, found in findings
    ]  # fmt: skip
    return Table.of("Every claim and what became of it", columns, rows, keep=("pairs",))


def claims_table(findings: Sequence[Finding]) -> Table:
    """The claims of an experiment with the numbers behind the verdicts."""
    columns = [
        Column("claim"), Column("verdict"), *_GAIN, Column("pairs", "number"), Column("p (Holm)", "number"),
        Column("sd ratio", "number"),
    ]  # fmt: skip
    rows = [
        [
            Cell(found.claim.text, note=_compared(found)), _verdict(found), *_gain(found), _pairs(found), _p(found),
            _spread(found),
        ]
        for found in findings
    ]  # fmt: skip
    return Table.of("Claims", columns, rows, keep=("pairs",))


def _claim(found: Finding, several: bool) -> Cell:
    """With the setting, and with the coefficients where several were tested."""
    more = [label(found.setting), " against ".join(_sides(found)) if several else ""]
    return Cell(found.claim.text, note="; ".join(filter(None, more)))


def _sides(found: Finding) -> list[str]:
    """Both variants with their coefficients, and with what was tuned."""
    claim = found.claim
    return [_side(claim.better, found.better, claim.against), _side(claim.than, found.than, claim.against)]


def _side(name: str, group: Group | None, names: Iterable[str]) -> str:
    if group is None:
        return name
    fields = label(tuple((one, group.config[one]) for one in names))
    weight = "" if group.coefficient is None else words.number(group.coefficient)
    details = ", ".join(filter(None, (weight, label(group.tuned), fields)))
    return f"{name} ({details})" if details else name


def _compared(found: Finding) -> str:
    claim, where = found.claim, f"; {label(found.setting)}" if found.setting else ""
    if claim.margin is None:
        asked = f"{'higher' if claim.higher else 'lower'} is better"
    else:
        asked = f"within ±{100 * claim.margin:g} %" if claim.relative else f"within ±{claim.margin:g}"
    stages = f"{claim.stage} against {claim.than_stage}" if claim.than_stage else claim.stage
    return f"{' against '.join(_sides(found))}: {claim.metric} of {stages}, {asked}{where}"


def _verdict(found: Finding) -> Cell:
    return Cell(found.verdict, VERDICTS.index(found.verdict), "verdict")


def _gain(found: Finding) -> list[Cell]:
    gain, ends = found.gain, found.interval
    drawn = None if gain is None or ends is None else (ends[0], gain.mean, ends[1])
    return [mean_cell(gain), Cell(words.interval(ends), None if ends is None else ends[0], "interval", ends=drawn)]


def _pairs(found: Finding) -> Cell:
    sides = [group for group in (found.better, found.than) if group is not None]
    lost = {
        "diverged": {seed for one in sides for seed in one.diverged},
        "dead": {s for one in sides for s in one.dead},
    }
    note = ", ".join(f"{words.count(len(some), 'seed')} {what}" for what, some in lost.items() if some)
    return Cell(str(found.pairs), found.pairs, "number", note)


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
