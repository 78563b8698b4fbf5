"""All claims of an experiment in one picture: the gain of each, its interval, and the verdict by colour and sign."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from racecar.inspect.style import WIDTH, new_figure, styled
from racecar_lab.report.claim_words import claim_text, distinct_settings, ends_of, gain_text, mean_of
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import collect
from racecar_lab.report.metrics import Unit, unit
from racecar_lab.report.settings import label
from racecar_lab.report.verdicts import COLOURS, SIGNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE, ROW, THIN, EDGE = 0.17, 0.24, 0.045, 0.55
"""Heights in inches: of a line of words, of a row's interval, of the interval of a row without words, and of what a
panel needs for its axis."""
LETTERS = 47
"""Maximal number of letters in a line of words."""
MANY = 60
"""Maximal number of findings of a figure in which every setting of a claim is named. If there are more, each setting is
a thin line without words, the largest gain on top."""

Row = tuple[str, Finding | None]
"""A row of the figure: its words, and the finding whose interval is drawn below them; None: words alone."""


@styled
def forest(findings: Sequence[Finding]) -> Figure:
    """Draw all claims in one figure, from top to bottom, in one panel for each unit of gains. Words stand above their
    intervals, so that the figure is narrow enough for a telephone.

    Args:
        findings: at least one, each with a verdict.
    """
    panels: dict[Unit, list[Row]] = {}
    alt: list[str] = []
    named = zip(findings, map(label, distinct_settings(findings)), strict=True)
    claims = collect(((unit(finding.claim), finding.claim.text), (finding, where)) for finding, where in named)
    for (scale, text), pairs in claims.items():
        rows, members = panels.setdefault(scale, []), [finding for finding, _ in pairs]
        rows += [(_wrapped(text), None)] if len(pairs) > 1 else []
        if len(pairs) > 1 and len(findings) > MANY:
            rows += [("", finding) for finding in sorted(members, key=mean_of, reverse=True)]
            alt.append(claim_text(members))
            continue
        for finding, where in pairs:
            whole = f"{text} ({where})" if where else text
            rows.append((_wrapped(f"{SIGNS[finding.verdict]} {where if where and len(pairs) > 1 else whole}"), finding))
            alt.append(f"{finding.verdict}: {whole} ({gain_text(finding)})")
    heights = [EDGE + sum(sum(_heights(row)) for row in rows) for rows in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, sum(heights)), height_ratios=heights)
    for (axis,), (scale, rows) in zip(axes, panels.items(), strict=True):
        _panel(axis, scale, rows)
    figure.set_label("; ".join(alt))
    return figure


def _wrapped(text: str) -> str:
    """A text broken into lines of at most ``LETTERS`` letters; a name and its value, such as "lr = 0.1", stay on one
    line."""
    return fill(text.replace(" = ", "\u00a0=\u00a0"), LETTERS)


def _heights(row: Row) -> tuple[float, float]:
    """Heights in inches of a row's words and of its interval."""
    words, finding = row
    return LINE * len(words.splitlines()), 0.0 if finding is None else ROW if words else THIN


def _panel(axis: Axes, scale: Unit, rows: Sequence[Row]) -> None:
    """Draw the claims of one unit into a panel: a diamond is the paper's gain, a grey band the margin, a dotted line
    the interval of the gain with dead nets included."""
    y, reach = 0.0, 0.0
    for row in rows:
        (words, finding), (above, height) = row, _heights(row)
        colour = "#000000" if finding is None else COLOURS[finding.verdict]
        axis.text(0, y, words, transform=axis.get_yaxis_transform(), va="top", color=colour, in_layout=False)
        if finding is not None:
            middle, size = y - above - 0.4 * height, min(6.0, 72 * height)
            numbers = finding.paper, finding.claim.margin
            paper, margin = (None if number is None else scale.factor * number for number in numbers)
            if margin is not None:
                edges = middle - height / 3, middle + height / 3
                axis.fill_between([-margin, margin], *edges, color="#DDDDDD", linewidth=0)
            if finding.interval_with_dead is not None:  # which may leave the picture
                ends = [scale.factor * end for end in finding.interval_with_dead]
                axis.plot(ends, [middle] * 2, color=colour, linewidth=1, linestyle=":")
            axis.plot(ends_of(finding), [middle] * 2, color=colour, linewidth=size / 3)
            axis.plot([mean_of(finding)], [middle], "o", color=colour, markersize=size)
            if paper is not None:
                axis.plot([paper], [middle], "D", color="#333333", markerfacecolor="none", markersize=size)
            reach = max(reach, *map(abs, ends_of(finding)), abs(paper or 0.0), margin or 0.0)
        y -= above + height
    axis.axvline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    axis.set(xlim=(-1.08 * (reach or 1), 1.08 * (reach or 1)), ylim=(y, 0), yticks=[], xlabel=f"gain in {scale.name}")
    axis.locator_params(axis="x", nbins=4)  # long numbers do not meet
    axis.spines["left"].set_visible(False)
    axis.grid(False, axis="y")


def forest_title(findings: Sequence[Finding]) -> str:
    """The title of the figure of all claims, with the meaning of its marks."""
    marks = [f"{SIGNS[verdict]} {verdict}" for verdict in dict.fromkeys(finding.verdict for finding in findings)]
    marks += ["◇ the paper's gain"] if any(finding.paper is not None for finding in findings) else []
    marks += ["dotted: with dead nets"] if any(finding.gain_with_dead is not None for finding in findings) else []
    marks += ["thin: one setting each"] if len(findings) > MANY else []
    marks += ["grey: the margin"] if any(finding.claim.margin is not None for finding in findings) else []
    return f"All claims: mean gains and their corrected 95 % intervals ({', '.join(marks)})"
