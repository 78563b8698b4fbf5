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
    seen: list[str] = []
    named = zip(findings, map(label, telling_settings(findings)), strict=True)
    claims = collect(((unit(one.claim), one.claim.text), (one, where)) for one, where in named)
    for (of, text), some in claims.items():
        rows, several = panels.setdefault(of, []), len(some) > 1
        if several:
            rows.append((_filled(text), None))
        if several and len(findings) > MANY:
            rows += [("", one) for one in sorted((one for one, _ in some), key=mean_of, reverse=True)]
            seen.append(claim_told([one for one, _ in some]))
            continue
        for one, where in some:
            whole = f"{text} ({where})" if where else text
            rows.append((_filled(f"{SIGNS[one.verdict]} {where if several and where else whole}"), one))
            seen.append(f"{one.verdict}: {whole} ({gain_told(one)})")
    heights = [EDGE + sum(sum(_heights(row)) for row in rows) for rows in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, sum(heights)), height_ratios=heights)
    for (axis,), (of, rows) in zip(axes, panels.items(), strict=True):
        _panel(axis, of, rows)
    figure.set_label("; ".join(seen))
    return figure


def _filled(text: str) -> str:
    """In lines; a name and its value stay on one."""
    return fill(text.replace(" = ", "\u00a0=\u00a0"), LETTERS)


def _heights(row: Row) -> tuple[float, float]:
    """Inches of the words and of the interval."""
    words, found = row
    return LINE * len(words.splitlines()), 0.0 if found is None else ROW if words else THIN


def _panel(axis: Axes, of: Unit, rows: Sequence[Row]) -> None:
    y, reach = 0.0, max(of.factor * abs(end) for _, one in rows if one for end in _ends(one))
    for row in rows:
        (words, found), (above, height) = row, _heights(row)
        colour = "#000000" if found is None else COLOURS[found.verdict]
        axis.text(0, y, words, transform=axis.get_yaxis_transform(), va="top", color=colour, in_layout=False)
        if found is not None:
            _interval(axis, found, of.factor, y - above - 0.4 * height, height)
        y -= above + height
    axis.axvline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    axis.set(xlim=(-1.08 * (reach or 1), 1.08 * (reach or 1)), ylim=(y, 0), yticks=[], xlabel=f"gain in {of.name}")
    axis.locator_params(axis="x", nbins=4)  # long numbers do not meet
    axis.spines["left"].set_visible(False)
    axis.grid(False, axis="y")


def _interval(axis: Axes, found: Finding, factor: float, y: float, height: float) -> None:
    """One finding at y, in a row of a height."""
    assert found.interval is not None
    colour, size = COLOURS[found.verdict], min(6.0, 72 * height)
    if found.claim.margin is not None:
        span = [-factor * found.claim.margin, factor * found.claim.margin]
        axis.fill_between(span, y - height / 3, y + height / 3, color="#DDDDDD", linewidth=0)
    if found.whole_interval is not None:
        axis.plot([factor * end for end in found.whole_interval], [y, y], color=colour, linewidth=1, linestyle=":")
    axis.plot([factor * end for end in found.interval], [y, y], color=colour, linewidth=size / 3)
    axis.plot([factor * mean_of(found)], [y], "o", color=colour, markersize=size)
    if found.paper is not None:
        axis.plot([factor * found.paper], [y], "D", color="#333333", markerfacecolor="none", markersize=size)


def _ends(found: Finding) -> list[float]:
    """What must be seen; an interval with dead nets may leave the picture."""
    return [*(found.interval or ()), *(one for one in (found.paper, found.claim.margin) if one is not None)]


def title(findings: Sequence[Finding]) -> str:
    """What the picture shows, with the meaning of its marks."""
    marks = [f"{SIGNS[name]} {name}" for name in dict.fromkeys(one.verdict for one in findings)]
    marks += ["◇ the paper's gain"] if any(one.paper is not None for one in findings) else []
    marks += ["dotted: with dead nets"] if any(one.whole is not None for one in findings) else []
    marks += ["thin: one setting each"] if len(findings) > MANY else []
    marks += ["grey: the margin"] if any(one.claim.margin is not None for one in findings) else []
    return f"All claims: mean gains and their corrected 95 % intervals ({', '.join(marks)})"
