"""Figures as SVG: words stay words, large figures are small files, and names cannot break out."""

from xml.etree import ElementTree

import pytest

from racecar.inspect.style import new_figure, styled
from racecar_lab.report import pictures
from racecar_lab.report.pictures import picture, sheet, with_night

SPACE = "{http://www.w3.org/2000/svg}"
TITLE = "A title & that is longer than the figures are wide, by far <b>"


@styled
def draw():
    figure, ((axis, other),) = new_figure(1, 2, (3, 2))
    axis.plot([1, 2], [1, 0.123456], marker="o", label="<Std> & co 0.123456", color="#A3241C")
    axis.legend()
    other.imshow([[0.0, 1.0], [0.5, 0.2]])
    return figure


def words(svg):
    return [one.text for one in ElementTree.fromstring(svg).iter(f"{SPACE}text")]


def test_words_stay_words():
    """A number in words is not shortened, and every title is on the sheet, in lines if it is long."""
    assert "<Std> & co 0.123456" in words(with_night(picture(draw(), "T").svg))
    assert TITLE in " ".join(words(sheet([picture(draw(), TITLE)])))


def test_large_figures_are_png(monkeypatch):
    monkeypatch.setattr(pictures, "LARGEST", 100)
    one = picture(draw(), "T")
    (image,) = ElementTree.fromstring(with_night(one.svg)).iter(f"{SPACE}image")
    assert image.get("href").startswith("data:image/png;base64,iVBOR")
    assert image.get("href") in sheet([one])


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
