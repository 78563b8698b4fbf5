"""Figures as SVG: words stay words, nothing is loaded, pages are the same twice, and a sheet shows all of them."""

import re
from xml.etree import ElementTree

import pytest

from racecar.inspect.style import new_figure, styled
from racecar_lab.report import pictures
from racecar_lab.report.pictures import picture, sheet, with_night

SPACE = "{http://www.w3.org/2000/svg}"
TITLE = "A title & that is longer than the figures are wide, by far <b>"


@styled
def draw(size=(3, 2)):
    figure, ((axis, other),) = new_figure(1, 2, size)
    axis.plot([1, 2], [1, 0.123456], marker="o", label="<Std> & co 0.123456", color="#A3241C")
    axis.legend()
    other.imshow([[0.0, 1.0], [0.5, 0.2]])
    figure.set_label("mean 0.5")
    return figure


def words(svg):
    return [one.text for one in ElementTree.fromstring(svg).iter(f"{SPACE}text")]


def test_a_figure():
    one = picture(draw(), "T")
    assert (one.width, one.height, one.alt) == (216, 144, "T: mean 0.5.")
    shown = with_night(one.svg)
    assert "<Std> & co 0.123456" in words(shown)  # a number in words is not shortened
    assert "<metadata" not in shown
    assert not re.search(r'(?:href|src)="(?!#|data:)', shown)
    assert picture(draw(), "T") == one


def test_large_figures_are_png(monkeypatch):
    monkeypatch.setattr(pictures, "LARGEST", 100)
    one = picture(draw(), "T")
    (image,) = ElementTree.fromstring(with_night(one.svg)).iter(f"{SPACE}image")
    assert image.get("href").startswith("data:image/png;base64,iVBOR")
    assert image.get("href") in sheet([one])


def test_all_is_on_the_sheet():
    """Every figure below its title, none over another."""
    pictures = [picture(draw(size), f"{TITLE} {i}") for i, size in enumerate([(3, 2), (3.5, 1.5), (6, 1)])]
    root = ElementTree.fromstring(sheet(pictures))
    bottom = 0.0
    for figure in root.findall(f"{SPACE}svg"):
        assert float(figure.get("y")) >= bottom
        bottom = float(figure.get("y")) + float(figure.get("height"))  # in units of the sheet, not in points
    assert bottom <= float(root.get("height").removesuffix("pt"))
    assert len(root.findall(f"{SPACE}svg")) == 3
    assert " ".join(text.text for text in root.findall(f"{SPACE}text")) == " ".join(f"{TITLE} {i}" for i in range(3))


@pytest.mark.parametrize("style", ["fill:#123456", 'a" onload="x'])
def test_hostile_words(style):
    """Whatever a name is, the SVG is well-formed and has no other attributes."""

    @styled
    def named():
        figure, ((axis,),) = new_figure(1, 1, (3, 2))
        axis.set_title(f' x="1.23456" style="{style}" </style><script>')
        return figure

    root = ElementTree.fromstring(sheet([picture(named(), f' style="{style}" </style><script>')]))
    assert not list(root.iter(f"{SPACE}script"))
    assert not [name for one in root.iter() for name in one.attrib if name.startswith("on")]
