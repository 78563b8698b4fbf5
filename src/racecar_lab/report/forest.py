"""All claims of an experiment in one picture: the gain of each, its interval, and the verdict by colour and sign."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from racecar.inspect.style import WIDTH, new_figure, styled
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import collect, label
from racecar_lab.report.told import claim_told, gain_told, mean_of, telling_settings
from racecar_lab.report.units import Unit, unit
from racecar_lab.report.verdicts import COLOURS, SIGNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE, ROW, THIN, EDGE = 0.17, 0.24, 0.045, 0.55
"""Inches of a line of words, of an interval, of one of many intervals, and of a panel's axis."""
LETTERS = 47
"""Of a line of words."""
MANY = 60
"""Findings up to which every setting of a claim is named. Of more each is a thin line, the best above."""

Row = tuple[str, Finding | None]
"""Words, and the finding whose interval is drawn below them."""


@styled
def forest(findings: Sequence[Finding]) -> Figure:
    """Claims from above, in panels of one unit each; words stand above intervals, for a telephone.

    Args:
        findings: those that were judged, one at least.
    """
    panels: dict[Unit, list[Row]] = {}
    alt: list[str] = []
    named = zip(findings, map(label, telling_settings(findings)), strict=True)
    claims = collect(((unit(finding.claim), finding.claim.text), (finding, where)) for finding, where in named)
    for (scale, text), pairs in claims.items():
        rows, members = panels.setdefault(scale, []), [finding for finding, _ in pairs]
        if len(pairs) > 1:
            rows.append((_filled(text), None))
        if len(pairs) > 1 and len(findings) > MANY:
            rows += [("", finding) for finding in sorted(members, key=mean_of, reverse=True)]
            alt.append(claim_told(members))
            continue
        for finding, where in pairs:
            whole = f"{text} ({where})" if where else text
            rows.append((_filled(f"{SIGNS[finding.verdict]} {where if where and len(pairs) > 1 else whole}"), finding))
            alt.append(f"{finding.verdict}: {whole} ({gain_told(finding)})")
    heights = [EDGE + sum(sum(_heights(row)) for row in rows) for rows in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, sum(heights)), height_ratios=heights)
    for (axis,), (scale, rows) in zip(axes, panels.items(), strict=True):
        _panel(axis, scale, rows)
    figure.set_label("; ".join(alt))
    return figure


def _filled(text: str) -> str:
    """In lines; a name and its value stay on one."""
    return fill(text.replace(" = ", "\u00a0=\u00a0"), LETTERS)


def _heights(row: Row) -> tuple[float, float]:
    """Inches of the words and of the interval."""
    words, finding = row
    return LINE * len(words.splitlines()), 0.0 if finding is None else ROW if words else THIN


def _panel(axis: Axes, scale: Unit, rows: Sequence[Row]) -> None:
    y, reach = 0.0, max(scale.factor * abs(end) for _, finding in rows if finding for end in _ends(finding)) or 1.0
    for row in rows:
        (words, finding), (above, height) = row, _heights(row)
        colour = "#000000" if finding is None else COLOURS[finding.verdict]
        axis.text(0, y, words, transform=axis.get_yaxis_transform(), va="top", color=colour, in_layout=False)
        if finding is not None:
            _interval(axis, finding, scale.factor, y - above - 0.4 * height, height)
        y -= above + height
    axis.axvline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    axis.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(y, 0), yticks=[], xlabel=f"gain in {scale.name}")
    axis.locator_params(axis="x", nbins=4)  # long numbers do not meet
    axis.spines["left"].set_visible(False)
    axis.grid(False, axis="y")


def _interval(axis: Axes, finding: Finding, factor: float, y: float, height: float) -> None:
    """One finding at y, in a row of a height."""
    assert finding.interval is not None
    colour, size = COLOURS[finding.verdict], min(6.0, 72 * height)
    if finding.claim.margin is not None:
        span = [-factor * finding.claim.margin, factor * finding.claim.margin]
        axis.fill_between(span, y - height / 3, y + height / 3, color="#DDDDDD", linewidth=0)
    if finding.whole_interval is not None:
        axis.plot([factor * end for end in finding.whole_interval], [y, y], color=colour, linewidth=1, linestyle=":")
    axis.plot([factor * end for end in finding.interval], [y, y], color=colour, linewidth=size / 3)
    axis.plot([factor * mean_of(finding)], [y], "o", color=colour, markersize=size)
    if finding.paper is not None:
        axis.plot([factor * finding.paper], [y], "D", color="#333333", markerfacecolor="none", markersize=size)


def _ends(finding: Finding) -> list[float]:
    """What must be seen; an interval with dead nets may leave the picture."""
    return [*(finding.interval or ()), *(end for end in (finding.paper, finding.claim.margin) if end is not None)]


def title(findings: Sequence[Finding]) -> str:
    """What the picture shows, with the meaning of its marks."""
    marks = [f"{SIGNS[verdict]} {verdict}" for verdict in dict.fromkeys(finding.verdict for finding in findings)]
    marks += ["◇ the paper's gain"] if any(finding.paper is not None for finding in findings) else []
    marks += ["dotted: with dead nets"] if any(finding.whole is not None for finding in findings) else []
    marks += ["thin: one setting each"] if len(findings) > MANY else []
    marks += ["grey: the margin"] if any(finding.claim.margin is not None for finding in findings) else []
    return f"All claims: mean gains and their corrected 95 % intervals ({', '.join(marks)})"
