"""Figures as parts of a page: SVG among its other elements, or PNG where that is smaller."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from racecar.inspect.style import SETTINGS
from racecar.support.extras import need
from racecar.support.files import write_atomically
from racecar_lab.report.svg import light, local

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 200_000
"""Bytes of SVG; a larger figure becomes a PNG."""
_DOTS = 160
PAGE_COLOURS = {
    "#ffffff": "var(--card)",
    "#000000": "var(--ink)",
    "#333333": "var(--ink)",
    "#dddddd": "var(--line)",
    "#14702e": "var(--good)",
    "#565b61": "var(--none)",
    "#a3241c": "var(--bad)",
}
"""Paper, ink, lines and verdicts of our figures, as the page's style sheet names them."""

Place = tuple[str, str]
"""Kind of a figure that all experiments have, and the setting of its runs; both empty for an experiment's own."""


@dataclass(frozen=True)
class Picture:
    """A figure, ready for the page and for the sheet beside it."""

    title: str
    alt: str
    """What it shows, for those who cannot see it."""
    width: int
    """In CSS pixels, as it was drawn."""
    height: int
    suffix: str
    """"svg" or "png"."""
    content: bytes
    """SVG as it was drawn, or the PNG."""
    markup: str
    """The inline SVG; empty for a PNG."""
    place: Place = ("", "")

    @property
    def data(self) -> str:
        """The PNG as an address of its own."""
        return f"data:image/png;base64,{base64.b64encode(self.content).decode()}"


def picture(figure: Figure, title: str, prefix: str) -> Picture:
    """Draw a figure.

    Args:
        figure: of matplotlib.
        title: shown below it.
        prefix: for the ids inside the SVG, different for every figure of a page.
    """
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    alt = describe(figure, title)
    drawn = _draw(figure, "svg")
    if len(light(drawn)) > LARGEST:
        return Picture(title, alt, width, height, "png", _draw(figure, "png"), "")
    return Picture(title, alt, width, height, "svg", drawn, _inline(drawn, prefix, alt))


def save_light(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, as light as those of a page."""
    with write_atomically(path) as file:
        file.write(light(_draw(figure, "svg")))


def describe(figure: Figure, title: str) -> str:
    """What is seen in a figure: its label has the numbers, where whoever drew it gave it one; else its panels, axes and
    legends."""
    if label := str(figure.get_label()):
        return f"{title}: {label}."
    parts, names = [], dict.fromkeys(_legend(figure))
    for axis in figure.axes:
        what = [axis.get_title(), axis.get_ylabel()]
        over = axis.get_xlabel()
        text = ": ".join(filter(None, what)) + (f" over {over}" if over else "")
        if text:
            parts.append(" ".join(text.split()))
    panels = list(dict.fromkeys(parts))
    said = [title, *(panels if len(panels) <= 6 else [f"{len(panels)} panels"])]
    if names:
        said.append(f"for {', '.join(names)}")
    return "; ".join(said) + "."


def _legend(figure: Figure) -> Iterator[str]:
    for legend in (*figure.legends, *(axis.get_legend() for axis in figure.axes)):
        if legend is not None:
            yield from (text.get_text() for text in legend.get_texts())


def _draw(figure: Figure, kind: str) -> bytes:
    file = io.BytesIO()
    more = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": _DOTS}
    with need("matplotlib", "lab").rc_context(SETTINGS):
        figure.savefig(file, format=kind, **more)
    return file.getvalue()


def _inline(content: bytes, prefix: str, alt: str) -> str:
    """SVG for the middle of a page: no namespaces, no style sheet, ids of its own, and nothing that is not needed."""
    root = ElementTree.fromstring(content)
    used = set(re.findall(r"#([^)\"]+)[)\"]", content.decode()))
    for parent in root.iter():
        for child in list(parent):
            if local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = local(element.tag)
        element.tail = None  # line breaks between elements
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        named = {local(name): text for name, text in element.attrib.items()}
        element.attrib = {name: _short(name, own(name, _by_night(text), prefix)) for name, text in named.items()}
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    # What the style sheet said of all elements; here it would speak for the whole page.
    root.attrib |= {"stroke-linejoin": "round", "role": "img", "aria-label": alt}
    return ElementTree.tostring(root, encoding="unicode")


def _by_night(text: str) -> str:
    """Colours that a page has in a light and a dark form, by their names in its style sheet."""
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: PAGE_COLOURS.get(found[0], found[0]), text)


def own(name: str, text: str, prefix: str) -> str:
    """An attribute with its ids made different from those of other figures."""
    if name == "id":
        return f"{prefix}-{text}"
    if name == "href" and text.startswith("#"):
        return f"#{prefix}-{text[1:]}"
    return re.sub(r"url\(#", f"url(#{prefix}-", text)


def _short(name: str, text: str) -> str:
    """Coordinates to a hundredth of a point."""
    if name != "d":
        return text
    return re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text).replace("\n", "")
