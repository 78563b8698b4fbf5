"""All claims of an experiment in one picture: the gain of each, its interval, and the verdict by colour and sign."""

from __future__ import annotations

from collections.abc import Sequence
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
    named = [_words(one, setting, letters) for one, setting in zip(findings, telling_settings(findings), strict=True)]
    panels = collect(
        (unit(one.claim), pair) for one, pair in zip(findings, zip(findings, named, strict=True), strict=True)
    )
    heights = [EDGE + sum(sum(_room(text, wide)) for _, text in some) for some in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDE if wide else WIDTH, sum(heights)), height_ratios=heights)
    for (axis,), (one, some) in zip(axes, panels.items(), strict=True):
        _panel(axis, one, some, wide)
    said = [
        f"{found.verdict}: {' '.join(text)[2:]} ({gain_told(found)})"
        for found, text in zip(findings, named, strict=True)
    ]
    figure.set_label("; ".join(said))
    return figure


def _words(found: Finding, setting: Setting, letters: int) -> list[str]:
    where = label(setting).replace(" = ", "\u00a0=\u00a0")  # which stay on one line
    text = f"{found.claim.text} ({where})" if setting else found.claim.text
    return wrap(f"{SIGNS[found.verdict]} {text}", letters)


def _room(text: Sequence[str], wide: bool) -> tuple[float, float]:
    """Inches above and below the middle of a claim's interval."""
    half = (ROW + LINE * (len(text) - 1)) / 2
    return (half, half) if wide else (LINE * len(text) + ROW / 2, ROW / 2)


def _panel(axis: Axes, of: Unit, rows: Sequence[tuple[Finding, list[str]]], wide: bool) -> None:
    top, reach = 0.0, max(of.factor * abs(end) for found, _ in rows for end in _ends(found))
    shifted = need("matplotlib.transforms", "lab").offset_copy
    words_at = shifted(axis.get_yaxis_transform(), axis.figure, x=-BESIDE if wide else 0.0)
    for found, text in rows:
        colour, (above, below) = COLOURS[found.verdict], _room(text, wide)
        y = top - above
        axis.text(0.0, y if wide else top, "\n".join(text), transform=words_at, va="center" if wide else "top",
                  color=colour, linespacing=1.25, in_layout=wide)  # fmt: skip
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
        axis.plot([0, 0], [y - below, y + below], color="#000000", linewidth=0.8)
        top = y - below
    axis.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(top, 0), yticks=[], xlabel=f"gain in {of.name}")
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
    first, counts = some[0], collect((one.verdict, one) for one in some)
    told = [f"{len(counts[name])} {name}" for name in SIGNS if name in counts]
    all_ = f"all {len(some)}" if len(some) > 1 else "the only claim"
    rest = f"{all_} {next(iter(counts))}" if len(counts) == 1 else f"of {len(some)} claims {', '.join(told)}"
    return f"{first.claim.text}: {first.verdict} ({gain_told(first)}); {rest}."


def gain_told(found: Finding) -> str:
    """As "+1.2 points, 0.3 to 2.1"."""
    assert found.gain is not None
    assert found.interval is not None
    of = unit(found.claim)
    low, high = (of.factor * end for end in found.interval)
    return f"{words.signed(of.factor * found.gain.mean, (high - low) / 2)} {of.name}, {words.interval((low, high))}"
