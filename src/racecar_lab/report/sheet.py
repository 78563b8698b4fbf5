"""The figures of a section on one sheet, which Markdown shows as one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from racecar_lab.report.pictures import Picture, own
from racecar_lab.report.svg import SPACES, light, local

WIDTH = 260.0
"""In points, unless a figure is wider: one figure, so that a telephone shows the sheet as it is."""
GAP, LINE, LETTER = 12.0, 12.0, 5.5
"""Between figures, from one line of a caption to the next, and of a letter of it."""
_POINTS = 0.75  # in a CSS pixel
_SVG = f"{{{SPACES['']}}}"
_HREF = f"{{{SPACES['xlink']}}}href"
_CAPTION = "font:bold 9px sans-serif;fill:#333333"


def sheet(figures: Sequence[Picture]) -> bytes:
    """One SVG of all figures, side by side where there is room, each below its title."""
    width = max(WIDTH, *(_POINTS * one.width for one in figures))
    root = Element(f"{_SVG}svg")
    SubElement(root, f"{_SVG}rect", {"width": "100%", "height": "100%", "fill": "white"})
    y = 0.0
    for row in _rows(figures, width):
        titles = [wrap(one.title, max(20, int(_POINTS * one.width / LETTER))) for one in row]
        head, x = LINE * max(map(len, titles)) + 4, 0.0
        for one, title in zip(row, titles, strict=True):
            for i, line in enumerate(title, 1):
                place = {"x": f"{x + 4:g}", "y": f"{y + LINE * i:g}", "style": _CAPTION}
                SubElement(root, f"{_SVG}text", place).text = line
            root.append(_placed(one, f"f{figures.index(one)}", x, y + head))
            x += _POINTS * one.width + GAP
        y += head + _POINTS * max(one.height for one in row) + GAP
    root.attrib |= {"width": f"{width:g}pt", "height": f"{y:g}pt", "viewBox": f"0 0 {width:g} {y:g}"}
    return light(ElementTree.tostring(root))


def _rows(figures: Sequence[Picture], width: float) -> Iterator[list[Picture]]:
    """As many in a row as fit, in their order."""
    row: list[Picture] = []
    for one in figures:
        if row and sum(_POINTS * each.width + GAP for each in [*row, one]) - GAP > width:
            yield row
            row = []
        row.append(one)
    yield row


def _placed(figure: Picture, prefix: str, x: float, y: float) -> Element:
    """A figure as an element at its place."""
    place = {"x": x, "y": y, "width": _POINTS * figure.width, "height": _POINTS * figure.height}
    written = {name: f"{value:g}" for name, value in place.items()}
    if figure.suffix == "png":
        return Element(f"{_SVG}image", written | {_HREF: figure.data})
    element = ElementTree.fromstring(figure.content)
    element.attrib = {"viewBox": element.attrib["viewBox"], **written}
    for part in element.iter():
        part.attrib = {name: own(local(name), text, prefix) for name, text in part.attrib.items()}
    return element
