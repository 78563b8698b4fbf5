"""Colours and markers: every variant has its own, the same in every panel."""

import matplotlib
import matplotlib.colors
import pytest

from racecar.inspect import figures, style
from racecar_lab.report.pictures import PAGE_COLOURS
from tests.inspect.figure_cases import VARIANTS, inverse, leak, marked, plane, similar, variants

pytestmark = pytest.mark.usefixtures("nothing_of_the_user_s", "no_layout")


def test_other_names_are_told_apart_too():
    """Other names get colours and markers that none of the paper's variants has."""
    looks = [style.look(name, i) for i, name in enumerate((*VARIANTS, "RR, λ 0.1", "RR, λ 1", "RR, λ 10"))]
    pairs = {(look["color"], look["marker"]) for look in looks}
    assert len(pairs) == len(looks)
    assert len({look["marker"] for look in looks}) == len(looks)


MANY = {
    "similarity": lambda: figures.similarity_figure(variants(similar)),
    "plane": lambda: figures.plane_figure(variants(plane)),
    "invertibility": lambda: figures.invertibility_figure(variants(lambda i: inverse((0.1 * i + 0.1, 0.2, 0.3)))),
    "leakage": lambda: figures.leakage_figure(variants(lambda i: leak(seed=i))),
}


@pytest.mark.parametrize("name", MANY)
def test_variants_have_their_colour_and_marker_in_every_panel(name: str):
    figure = MANY[name]()
    looks = [(style.look(one)["color"], style.look(one)["marker"]) for one in VARIANTS]
    for axis in figure.axes:
        assert [(line.get_color(), line.get_marker()) for line in marked(axis)] == looks
    legends = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    (legend,) = legends
    assert [text.get_text() for text in legend.get_texts()] == list(VARIANTS)
    assert [line.get_color() for line in legend.get_lines()] == [colour for colour, _ in looks]


@pytest.mark.parametrize("colours", ["BrBG", "Reds", "gray"])
def test_ink_can_be_read_on_every_ground(colours):
    """Contrast of at least 4.5 (WCAG AA), by night, too: a page changes neither ink."""

    def light(rgb):
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for value in range(101):
        ground = matplotlib.colormaps[colours](value / 100)
        ink = style.ink_on(ground)
        assert ink.lower() not in PAGE_COLOURS
        low, high = sorted((light(ground), light(matplotlib.colors.to_rgb(ink))))
        assert (high + 0.05) / (low + 0.05) >= 4.5
