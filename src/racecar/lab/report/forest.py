"""All claims of an experiment in one picture: the gain of each, its interval, and the verdict by colour and sign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from racecar.inspect.style import WIDTH, new_figure, styled
from racecar.lab.report import words
from racecar.lab.report.findings import Finding
from racecar.lab.report.groups import Setting, collect, label, with_loss
from racecar.lab.report.units import Unit, unit
from racecar.lab.report.verdicts import COLOURS, NOT_RUN, SIGNS, TOO_FEW
from racecar.support.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, LINE, EDGE = 0.26, 0.17, 0.55
"""Inches of a claim's interval, of a line of its words, and of what is above and below a panel."""
WIDE, BESIDE = 9.0, 4.6
"""Inches of the picture on a desktop, and of the words there, which stand beside the intervals."""
_LETTERS, _LETTERS_BESIDE = 47, 66
"""Of a line of words."""
INK = "#000000"
TALL = 24
"""Rows of a panel from which on it has its axis above, too."""
HEARD = 6
"""Settings of one claim that are told one by one where a picture is told in words."""


def judged(findings: Sequence[Finding]) -> list[Finding]:
    """Those that have a verdict."""
    return [one for one in findings if one.verdict not in (TOO_FEW, NOT_RUN) and one.interval is not None]


def telling_settings(findings: Sequence[Finding]) -> list[Setting]:
    """What tells the settings of findings apart. Left out are fields that never vary, that a claim names itself, or
    that another field decides; of two that decide each other a number with decimals goes first."""
    named = {name for one in findings for name in (*one.claim.where, *one.claim.against)}
    settings = [{name: value for name, value in with_loss(one.setting) if name not in named} for one in findings]
    names = [
        name for name in dict.fromkeys(name for one in settings for name in one) if len(_values(settings, name)) > 1
    ]
    names.sort(key=lambda name: any(isinstance(one.get(name), float) for one in settings))
    kept: list[str] = []
    for name in names:
        together = collect((tuple(one.get(each) for each in kept), one.get(name)) for one in settings)
        if any(len(set(some)) > 1 for some in together.values()):
            kept.append(name)
    return [tuple((name, one[name]) for name in one if name in kept) for one in settings]


def _values(settings: Sequence[dict[str, object]], name: str) -> set[object]:
    return {one.get(name) for one in settings}


@styled
def forest(findings: Sequence[Finding], wide: bool = False) -> Figure:
    """Claims from above, in panels of one unit each.

    Args:
        findings: those that were judged, one at least.
        wide: as a desktop shows it, words beside the intervals; else as a telephone does, words above them.
    """
    letters = _LETTERS_BESIDE if wide else _LETTERS
    told = list(zip(findings, telling_settings(findings), strict=True))
    panels = {
        one: _rows(some, letters) for one, some in collect((unit(one.claim), (one, w)) for one, w in told).items()
    }
    heights = [EDGE + sum(sum(_room(row, wide)) for row in rows) for rows in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDE if wide else WIDTH, sum(heights)), height_ratios=heights)
    for (axis,), (of, rows) in zip(axes, panels.items(), strict=True):
        _panel(axis, of, rows, wide)
    figure.set_label("; ".join(_in_words(told)))
    return figure


def _in_words(told: Sequence[tuple[Finding, Setting]]) -> Iterator[str]:
    """What is seen, for who hears it: every row, but for a claim with many a summary."""
    for some in collect((one.claim.text, (one, where)) for one, where in told).values():
        if len(some) > HEARD:
            yield _claim_told([one for one, _ in some])
        else:
            yield from (f"{one.verdict}: {_whole(one, where)} ({gain_told(one)})" for one, where in some)


@dataclass(frozen=True)
class ForestRow:
    """A claim's words and interval; or, where it is judged in several settings, first its words, then a row for each
    of them."""

    text: Sequence[str]
    found: Finding | None = None


def _rows(told: Sequence[tuple[Finding, Setting]], letters: int) -> list[ForestRow]:
    rows = []
    for text, some in collect((one.claim.text, (one, where)) for one, where in told).items():
        if len(some) > 1:
            rows.append(ForestRow(wrap(text, letters)))
        for one, where in some:
            own = _unbroken(where) if where and len(some) > 1 else _whole(one, where)
            rows.append(ForestRow(wrap(f"{SIGNS[one.verdict]} {own}", letters), one))
    return rows


def _whole(found: Finding, where: Setting) -> str:
    return f"{found.claim.text} ({_unbroken(where)})" if where else found.claim.text


def _unbroken(where: Setting) -> str:
    """In words; name and value stay on one line."""
    return label(where).replace(" = ", "\u00a0=\u00a0")


def _room(row: ForestRow, wide: bool) -> tuple[float, float]:
    """Inches above and below the middle of a row's interval, or of its words."""
    half = (ROW + LINE * (len(row.text) - 1)) / 2
    return (half, half) if wide or row.found is None else (LINE * len(row.text) + ROW / 2, ROW / 2)


def _panel(axis: Axes, of: Unit, rows: Sequence[ForestRow], wide: bool) -> None:
    top, reach = 0.0, max(of.factor * abs(end) for row in rows if row.found for end in _ends(row.found))
    shifted = need("matplotlib.transforms", "lab").offset_copy
    words_at = shifted(axis.get_yaxis_transform(), axis.figure, x=-BESIDE if wide else 0.0)
    for row in rows:
        found, (above, below) = row.found, _room(row, wide)
        colour, y = COLOURS[found.verdict] if found else INK, top - above
        middle = wide or found is None
        axis.text(0.0, y if middle else top, "\n".join(row.text), transform=words_at, va="center" if middle else "top",
                  color=colour, linespacing=1.25, in_layout=wide)  # fmt: skip
        top = y - below
        if found is None:
            continue
        assert found.gain is not None
        assert found.interval is not None
        if found.claim.margin is not None:
            axis.fill_between([of.factor * end for end in (-found.claim.margin, found.claim.margin)],
                              y - ROW / 3, y + ROW / 3, color="#DDDDDD", linewidth=0)  # fmt: skip
        axis.plot([of.factor * end for end in found.interval], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
        if found.whole_interval is not None:
            axis.plot(
                [of.factor * end for end in found.whole_interval], [y, y], color=colour, linewidth=1, linestyle=":"
            )
        axis.plot([of.factor * found.gain.mean], [y], "o", color=colour, markersize=6)
        if found.paper is not None:
            axis.plot([of.factor * found.paper], [y], "D", color="#333333", markerfacecolor="none", markersize=6)
        axis.plot([0, 0], [y - below, y + below], color=INK, linewidth=0.8)
    axis.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(top, 0), yticks=[], xlabel=f"gain in {of.name}")
    if len(rows) > TALL:
        axis.tick_params(labeltop=True)
        axis.set_title(axis.get_xlabel(), fontsize=axis.xaxis.label.get_fontsize())
    axis.spines["left"].set_visible(False)
    axis.grid(False, axis="y")


def _ends(found: Finding) -> list[float]:
    """What must be seen; an interval with dead nets may leave the picture."""
    assert found.interval is not None
    return [*found.interval, *(one for one in (found.paper, found.claim.margin) if one is not None)]


def title(findings: Sequence[Finding]) -> str:
    """What the picture shows, with the meaning of its marks."""
    some = [f"{SIGNS[name]} {name}" for name in dict.fromkeys(one.verdict for one in findings)]
    more = ["◇ the paper's gain"] if any(one.paper is not None for one in findings) else []
    more += ["dotted: with dead nets"] if any(one.whole is not None for one in findings) else []
    more += ["grey: the margin"] if any(one.claim.margin is not None for one in findings) else []
    return f"All claims: mean gains and their corrected 95 % intervals ({', '.join([*some, *more])})"


def sentence(findings: Sequence[Finding]) -> str:
    """The finding in one sentence: the first claim with its number, and how many became what."""
    some = judged(findings)
    if not some:
        return f"None of {words.count(len(findings), 'claim')} could be judged by these runs." if findings else ""
    counts = collect((one.verdict, one) for one in some)
    told = [f"{len(counts[name])} {name}" for name in SIGNS if name in counts]
    all_ = f"all {len(some)}" if len(some) > 1 else "the only claim"
    rest = f"{all_} {next(iter(counts))}" if len(counts) == 1 else f"of {len(some)} claims {', '.join(told)}"
    first = [one for one in some if one.claim.text == some[0].claim.text]
    return f"{_claim_told(first)}; {rest}."


def _claim_told(own: Sequence[Finding]) -> str:
    """One claim, in all its settings."""
    first, *others = own
    if not others:
        return f"{first.claim.text}: {first.verdict} ({gain_told(first)})"
    counts = collect((one.verdict, one) for one in own)
    told = ", ".join(f"{name} in {len(counts[name])}" for name in SIGNS if name in counts)
    ends = " to ".join(_mean_told(some(own, key=_mean)) for some in (min, max))
    return f"{first.claim.text}: of {len(own)} settings {told} ({ends} {unit(first.claim).name})"


def gain_told(found: Finding) -> str:
    """As "+1.2 points, 0.3 to 2.1"."""
    assert found.interval is not None
    of = unit(found.claim)
    low, high = (of.factor * end for end in found.interval)
    return f"{_mean_told(found)} {of.name}, {words.interval((low, high))}"


def _mean_told(found: Finding) -> str:
    assert found.interval is not None
    factor, (low, high) = unit(found.claim).factor, found.interval
    return words.signed(factor * _mean(found), factor * (high - low) / 2)


def _mean(found: Finding) -> float:
    assert found.gain is not None
    return found.gain.mean
