"""The style of racecar's figures: a colour and a marker for each training variant, and saving to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from racecar.support.extras import need
from racecar.support.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "MARKERS",
    "SETTINGS",
    "SMALL",
    "WIDTH",
    "ink_on",
    "look",
    "new_figure",
    "save",
    "styled",
]

COLOURS = {
    "Std": "#E8850C",  # orange
    "Ort": "#1F6FC4",  # blue
    "OrtB": "#5FA8E8",  # a lighter one
    "Pre": "#7A5195",  # purple
    "RR": "#1B8A3A",  # green
    "RR1": "#8FD175",  # light green
    "lRR": "#FA8072",  # salmon
    "Lin": "#C2185B",  # crimson
    "WD": "#333333",  # dark grey
    "Drop": "#0099A8",  # teal
}
"""Training variant → colour, as in the paper; Pre, Lin, WD and Drop are not in the paper."""

MARKERS = {
    "Std": "o",
    "Ort": "s",
    "OrtB": "p",
    "Pre": "P",
    "RR": "^",
    "RR1": "v",
    "lRR": "D",
    "Lin": "d",
    "WD": "X",
    "Drop": "*",
}
"""Training variant → matplotlib marker, so that figures can be read without colours."""

WIDTH, SMALL = 3.6, 7.0
"""Width of a figure in inches, and size of its smallest letters in points, for pages that are also read on telephones:
a screen of 390 pixels has 346 for a figure, which is 3.6 inches at 96 per inch, where 7 points are 9 pixels."""

SETTINGS = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",  # letters stay letters: they can be searched and read aloud
    "svg.hashsalt": "racecar",  # the same figure gives the same file
}
"""Matplotlib rcParams of all figures."""

_MORE_COLOURS = ("#A05195", "#665191", "#B38B00", "#5B6B7A")
_MORE_MARKERS = ("p", "h", "<", ">")


P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorator: draw a figure with ``SETTINGS``, whatever the user's matplotlib settings are, and fix its layout."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _racecar_style():
            figure = draw(*args, **kwargs)
            if (layout := figure.get_layout_engine()) is not None:
                layout.execute(figure)
                figure.set_layout_engine(None)  # it would move things a little in every save
                for axis in figure.axes:  # its last digits are not always the same
                    left, bottom, width, height = (round(number, 6) for number in axis.get_position().bounds)
                    axis.set_position((left, bottom, width, height))
            return figure

    return drawn


@contextmanager
def _racecar_style() -> Iterator[None]:
    """A context with matplotlib's defaults and ``SETTINGS`` in place of the user's rcParams; the backend stays."""
    style, matplotlib = need("matplotlib.style", "inspect"), need("matplotlib", "inspect")
    with style.context("default"), matplotlib.rc_context(SETTINGS):
        yield


def look(name: str, i: int = 0) -> dict[str, Any]:
    """Colour and marker of a training variant as keyword arguments for ``Axes.plot``; other names get the i-th spare
    pair."""
    colour = COLOURS.get(name, _MORE_COLOURS[i % len(_MORE_COLOURS)])
    marker = MARKERS.get(name, _MORE_MARKERS[i % len(_MORE_MARKERS)])
    return {"color": colour, "marker": marker, "markeredgecolor": "white", "markeredgewidth": 0.5}


def ink_on(colour: Any) -> str:
    """The text colour, near-black or near-white, with more contrast on a background (r, g, b, …), each in [0, 1].

    They are not quite black and white, because pages in dark mode swap these two.
    """
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#010101" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#FEFEFE"


def new_figure(
    rows: int, columns: int, size: tuple[float, float], height_ratios: Sequence[float] | None = None
) -> tuple[Figure, list[list[Axes]]]:
    """A new figure of ``size`` (width, height) inches and its axes, row by row; it opens no window."""
    figure = need("matplotlib.figure", "inspect").Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=height_ratios)
    return figure, [list(line) for line in axes]


def save(figure: Figure, path: str | PathLike[str]) -> tuple[Path, Path]:
    """Write a figure as ``path``.svg and ``path``.png; returns both paths."""
    path = Path(path)
    paths = path.with_name(f"{path.name}.svg"), path.with_name(f"{path.name}.png")
    options: tuple[dict[str, Any], ...] = ({"metadata": {"Date": None}}, {"dpi": 150})
    for file_path, extra in zip(paths, options, strict=True):
        with write_atomically(file_path) as file, _racecar_style():
            figure.savefig(file, format=file_path.suffix[1:], **extra)
    return paths
