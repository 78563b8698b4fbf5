"""Figures as SVG for pages: words stay words, and colours follow the reader's choice of a light or dark page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import SETTINGS
from racecar.support.extras import need
from racecar.support.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 200_000
"""Maximal number of characters of an SVG; a larger figure becomes a PNG inside a small SVG."""
PAGE_COLOURS = {
    "#ffffff": "#1d2024", "#000000": "#e8e6e1", "#333333": "#e8e6e1", "#dddddd": "#363a40",
    "#14702e": "#8ddb9f", "#565b61": "#b9bdc2", "#a3241c": "#ff9d93",
}  # fmt: skip
"""Colour in a figure → the colour that replaces it on a dark page, as in page.css: of the paper, of ink and lines, of
verdicts."""


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, for the HTML page, and for the sheet of figures that the Markdown page shows."""

    title: str
    alt: str
    """Alternative text for people who cannot see the figure: its label in matplotlib."""
    width: float
    """Width in points (1/72 inch), like ``height``."""
    height: float
    svg: str
    """The figure as SVG in the colours of a light page."""

    @property
    def data(self) -> str:
        """The figure as a data: URL for an HTML image, with its colours for light and dark pages."""
        return f"data:image/svg+xml;base64,{base64.b64encode(with_night(self.svg).encode()).decode()}"


def picture(figure: Figure, title: str) -> Picture:
    """Draw a matplotlib figure as SVG; if that is too large, as a PNG inside an SVG."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    svg = to_svg(figure)
    if len(with_night(svg)) > LARGEST:
        png = base64.b64encode(_draw(figure, "png")).decode()
        svg = f'{_head(width, height)}<image width="100%" height="100%" href="data:image/png;base64,{png}"/></svg>\n'
    label = str(figure.get_label())
    return Picture(title, f"{title}: {label}." if label else f"{title}.", width, height, svg)


def to_svg(figure: Figure) -> str:
    """A figure as SVG, made small: without metadata, names of groups, and digits of less than a hundredth of a
    point."""
    svg = _draw(figure, "svg").decode()
    svg = re.sub(r' id="[a-zA-Z0-9.]+_\d+"(?=>)|\n *| transform="rotate\(-0 [^"]*"', "", svg[svg.index("<svg") :])
    return re.sub(r' (?:d|x|y|width|height)="[^"]*"', lambda places: re.sub(r"\d+\.\d{3,}", _short, places[0]), svg)


def with_night(svg: str) -> str:
    """An SVG with one style sheet instead of a style in each element; the sheet has the colours for light and dark
    pages."""
    names = {style: f"s{i}" for i, style in enumerate(dict.fromkeys(re.findall(r' style="([^"]*)"', svg)))}
    svg = re.sub(r' style="([^"]*)"', lambda style: f' class="{names[style[1]]}"', svg)
    day = "".join(f".{name}{{{style}}}" for style, name in names.items()).replace(": ", ":").replace("; ", ";")
    night = re.sub("#[0-9a-f]{6}", lambda colour: PAGE_COLOURS.get(colour[0], colour[0]), day)
    head, end, body = svg.partition(">")
    rules = f"{day}@media(prefers-color-scheme:dark){{text{{fill:{PAGE_COLOURS['#000000']}}}{night}}}"
    return f"{head}{end}<style>{rules}</style>{body}"


def save_svg(figure: Figure, path: Path) -> None:
    """Write a matplotlib figure into an SVG file, with colours for light and dark pages."""
    write_text(path, with_night(to_svg(figure)))


def sheet(pictures: Sequence[Picture]) -> str:
    """One SVG of several figures, each below its title: Markdown shows it as one picture."""
    y, parts = 0.0, []  # inside of the sheet points are the unit, and have no name
    for part in pictures:
        for line in wrap(part.title, int(part.width / 5.5)):
            y += 12
            parts.append(f'<text x="4" y="{y:g}" style="font:bold 9px sans-serif;fill:#333333">{escape(line)}</text>')
        parts.append(part.svg.replace('pt"', '"', 2).replace("<svg ", f'<svg y="{y + 4:g}" ', 1))
        y += 4 + part.height + 12
    paper = '<rect width="100%" height="100%" style="fill:#ffffff"/>'
    return with_night("\n".join([_head(max(part.width for part in pictures), y) + paper, *parts, "</svg>\n"]))


def _head(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}pt" height="{height:g}pt" '
        f'viewBox="0 0 {width:g} {height:g}">'
    )


def _draw(figure: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    more: dict[str, Any] = {"dpi": 160}
    if kind == "svg":
        more = {"metadata": dict.fromkeys(("Date", "Creator", "Format", "Type"))}
    with need("matplotlib", "lab").rc_context({**SETTINGS, "font.sans-serif": ["DejaVu Sans"]}):
        figure.savefig(file, format=kind, **more)
    return file.getvalue()


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
