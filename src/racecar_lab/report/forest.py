"""All claims of an experiment in one picture: the gain of each, its interval, and the verdict by colour and sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from racecar.inspect.style import WIDTH, new_figure, styled
from racecar.support.extras import need
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import Setting, collect, label
from racecar_lab.report.told import claim_told, gain_told, mean_of, telling_settings
from racecar_lab.report.units import Unit, unit
from racecar_lab.report.verdicts import COLOURS, SIGNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, LINE, THIN, EDGE = 0.26, 0.17, 0.045, 0.55
"""Inches of a claim's interval, of a line of its words, of one of many intervals, and of what is above and below a
panel."""
WIDE, BESIDE = 9.0, 4.6
"""Inches of the picture on a desktop, and of the words there, which stand beside the intervals."""
_LETTERS, _LETTERS_BESIDE = 47, 66
"""Of a line of words."""
INK = "#000000"
LETTERS = 50
"""On an axis, from which on it has fewer numbers."""
TALL = 8.0
"""Inches of a panel from which on it has its axis above, too."""
MANY = 60
"""Findings of a picture up to which settings of a claim are named one by one. In a fuller one each is a thin line, the
best above: a table has their names."""


@styled
def forest(findings: Sequence[Finding], wide: bool = False) -> Figure:
    """Claims from above, in panels of one unit each.

    Args:
        findings: those that were judged, one at least.
        wide: as a desktop shows it, words beside the intervals; else as a telephone does, words above them.
    """
    letters = _LETTERS_BESIDE if wide else _LETTERS
    told = list(zip(findings, telling_settings(findings), strict=True))
    thin, units = len(findings) > MANY, collect((unit(one.claim), (one, where)) for one, where in told)
    panels = {one: _rows(some, letters, thin) for one, some in units.items()}
    heights = [EDGE + sum(sum(_room(row, wide)) for row in rows) for rows in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDE if wide else WIDTH, sum(heights)), height_ratios=heights)
    for (axis,), (of, rows) in zip(axes, panels.items(), strict=True):
        _panel(axis, of, rows, wide)
    figure.set_label("; ".join(_in_words(told, thin)))
    return figure


def _in_words(told: Sequence[tuple[Finding, Setting]], thin: bool) -> Iterator[str]:
    """What is seen, for who hears it: every row, but for thin lines a summary."""
    for some in collect((one.claim.text, (one, where)) for one, where in told).values():
        if thin:
            yield claim_told([one for one, _ in some])
        else:
            yield from (f"{one.verdict}: {_whole(one, where)} ({gain_told(one)})" for one, where in some)


@dataclass(frozen=True)
class ForestRow:
    """A claim's words and interval; or, where it is judged in several settings, first its words, then a row for each
    of them; or, where these are many, its words and all intervals."""

    text: Sequence[str]
    found: Sequence[Finding] = ()


def _rows(told: Sequence[tuple[Finding, Setting]], letters: int, thin: bool) -> list[ForestRow]:
    rows = []
    for text, some in collect((one.claim.text, (one, where)) for one, where in told).items():
        if thin and len(some) > 1:
            found = sorted((one for one, _ in some), key=mean_of, reverse=True)
            rows.append(ForestRow(wrap(f"{text}: {_counted(found)}", letters), found))
            continue
        if len(some) > 1:
            rows.append(ForestRow(wrap(text, letters)))
        for one, where in some:
            own = _unbroken(where) if where and len(some) > 1 else _whole(one, where)
            rows.append(ForestRow(wrap(f"{SIGNS[one.verdict]} {own}", letters), [one]))
    return rows


def _counted(findings: Sequence[Finding]) -> str:
    """As "✓ 3, ○ 21"."""
    counts = Counter(one.verdict for one in findings)
    return ", ".join(f"{sign}\u00a0{counts[name]}" for name, sign in SIGNS.items() if name in counts)


def _whole(found: Finding, where: Setting) -> str:
    return f"{found.claim.text} ({_unbroken(where)})" if where else found.claim.text


def _unbroken(where: Setting) -> str:
    """In words; name and value stay on one line."""
    return label(where).replace(" = ", "\u00a0=\u00a0")


def _room(row: ForestRow, wide: bool) -> tuple[float, float]:
    """Inches above and below the middle of a row's intervals, or of its words."""
    half, thin = (ROW + LINE * (len(row.text) - 1)) / 2, (ROW + THIN * (len(row.found) - 1)) / 2
    if wide or not row.found:
        return (max(half, thin),) * 2
    return LINE * len(row.text) + thin, thin


def _panel(axis: Axes, of: Unit, rows: Sequence[ForestRow], wide: bool) -> None:
    top, reach = 0.0, max(of.factor * abs(end) for row in rows for found in row.found for end in _ends(found))
    reach = reach or 1.0  # both sides may be the same nets
    shifted = need("matplotlib.transforms", "lab").offset_copy
    words_at = shifted(axis.get_yaxis_transform(), axis.figure, x=-BESIDE if wide else 0.0)
    for row in rows:
        above, below = _room(row, wide)
        colour, y = COLOURS[row.found[0].verdict] if len(row.found) == 1 else INK, top - above
        middle = wide or not row.found
        axis.text(0.0, y if middle else top, "\n".join(row.text), transform=words_at, va="center" if middle else "top",
                  color=colour, linespacing=1.25, in_layout=wide)  # fmt: skip
        top, step = y - below, THIN if len(row.found) > 1 else ROW
        for i, found in enumerate(row.found):
            _interval(axis, found, of.factor, y + ((len(row.found) - 1) / 2 - i) * step, step)
        if row.found:
            axis.plot([0, 0], [y - below, y + below], color=INK, linewidth=0.8)
    axis.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(top, 0), yticks=[], xlabel=f"gain in {of.name}")
    texts = axis.xaxis.get_major_formatter().format_ticks(axis.get_xticks().tolist())
    if len(" ".join(texts)) > LETTERS:  # they would run into each other
        axis.locator_params(axis="x", nbins=4)
    if -top > TALL:
        axis.tick_params(labeltop=True)
        axis.set_title(axis.get_xlabel(), fontsize=axis.xaxis.label.get_fontsize())
    axis.spines["left"].set_visible(False)
    axis.grid(False, axis="y")


def _interval(axis: Axes, found: Finding, factor: float, y: float, height: float) -> None:
    """One finding at y, in a row of a height."""
    assert found.interval is not None
    colour, size = COLOURS[found.verdict], min(6.0, 72 * height)
    if found.claim.margin is not None:
        axis.fill_between([factor * end for end in (-found.claim.margin, found.claim.margin)],
                          y - height / 3, y + height / 3, color="#DDDDDD", linewidth=0)  # fmt: skip
    axis.plot([factor * end for end in found.interval], [y, y], color=colour, linewidth=size / 3,
              solid_capstyle="butt")  # fmt: skip
    if found.whole_interval is not None:
        axis.plot([factor * end for end in found.whole_interval], [y, y], color=colour, linewidth=size / 6,
                  linestyle=":")  # fmt: skip
    axis.plot([factor * mean_of(found)], [y], "o", color=colour, markersize=size)
    if found.paper is not None:
        axis.plot([factor * found.paper], [y], "D", color="#333333", markerfacecolor="none", markersize=size)


def _ends(found: Finding) -> list[float]:
    """What must be seen; an interval with dead nets may leave the picture."""
    assert found.interval is not None
    return [*found.interval, *(one for one in (found.paper, found.claim.margin) if one is not None)]


def title(findings: Sequence[Finding]) -> str:
    """What the picture shows, with the meaning of its marks."""
    some = [f"{SIGNS[name]} {name}" for name in dict.fromkeys(one.verdict for one in findings)]
    more = ["◇ the paper's gain"] if any(one.paper is not None for one in findings) else []
    more += ["dotted: with dead nets"] if any(one.whole is not None for one in findings) else []
    more += ["thin: one setting each"] if len(findings) > MANY else []
    more += ["grey: the margin"] if any(one.claim.margin is not None for one in findings) else []
    return f"All claims: mean gains and their corrected 95 % intervals ({', '.join([*some, *more])})"
