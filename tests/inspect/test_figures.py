"""Figures show the numbers of the results."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from racecar.inspect import figures, style
from tests.inspect.figure_cases import (
    DEPTHS,
    VARIANTS,
    close,
    drawn,
    inverse,
    leak,
    marked,
    plane,
    similar,
    variants,
    vectors,
)

pytestmark = pytest.mark.usefixtures("nothing_of_the_user_s", "no_layout")


# --- what is drawn is what was found ------------------------------------------------------------------------------


def points(line: Any) -> list[list[float]]:
    return [[float(x) for x in line.get_xdata(orig=False)], [float(y) for y in line.get_ydata(orig=False)]]


def test_spectrum_shows_the_values():
    found = vectors(4)
    shuffled = replace(found, values=found.values[[2, 0, 3, 1]], carried=found.carried[[2, 0, 3, 1]], order="data")
    figure = figures.spectrum_figure(shuffled)
    left, right = (marked(axis)[0] for axis in figure.axes)
    close(points(left), [[1, 2, 3, 4], found.values])
    close(points(right), [found.values, found.carried])
    assert figure.axes[0].get_ylim()[0] == 0


def test_similarity_shows_angles_and_the_best_match_of_every_datum():
    found = {"Std": similar(1), "RR": similar(2)}
    figure = figures.similarity_figure(found)
    for i, one in enumerate(found.values()):
        close(points(marked(figure.axes[0])[i]), [[1, 2, 3], [math.degrees(a) for a in one.angles]])
        for axis, best in zip(figure.axes[1:], (one.cosine.values.amax(0), one.ssim.values.amax(0), None), strict=True):
            best = one.lpips.values.amin(0) if best is None else best
            close(points(marked(axis)[i]), [[1, 2, 3, 4], best.sort()[0]])


def test_plane_shows_every_layer_and_rings_the_full_ones():
    found = plane()
    (axis,) = figures.plane_figure(found).axes
    close(points(marked(axis)[0]), [[row.i_xd for row in found], [row.i_dy for row in found]])
    (rings,) = axis.collections
    close(rings.get_offsets(), [[row.i_xd, row.i_dy] for row in found if row.saturated])
    labels = {note.get_text(): note.xy for note in axis.texts}
    assert labels == {row.name: (row.i_xd, row.i_dy) for row in found}


def test_sweep_shows_every_layer_over_the_bins():
    found = {bins: plane(bins) for bins in (2, 8, 64)}
    figure = figures.sweep_figure(found)
    for axis, field in zip(figure.axes, ("i_xd", "i_dy"), strict=True):
        for i, line in enumerate(axis.lines):
            close(points(line), [[2, 8, 64], [getattr(one[i], field) for one in found.values()]])
    assert len({line.get_marker() for line in figure.axes[0].lines}) == 4


def test_invertibility_shows_what_there_is():
    figure = figures.invertibility_figure(inverse((0.5, None, 2.0), (None, 1e-9, 0.25)))
    left, right = figure.axes
    close(points(marked(left)[0]), [[1, 3], [0.5, 2.0]])
    close(points(marked(right)[0]), [[2, 3], [1e-9, 0.25]])
    assert left.get_yscale() == right.get_yscale() == "log"
    assert [label.get_text() for label in left.get_xticklabels()] == DEPTHS


def inside(axis: Axes, line: Any) -> list[bool]:
    """For each point of a line, whether it is inside the frame of the axis."""
    axis.figure.draw_without_rendering()
    places = line.get_transform().transform(np.column_stack(points(line)))
    frame = axis.get_window_extent()
    return [bool(np.isfinite(place).all()) and frame.padded(1).contains(*place) for place in places]


def test_no_error_at_all_can_be_seen():
    """An error of 0, the best value, is visible although the axis is logarithmic."""
    figure = figures.invertibility_figure({"Std": inverse(), "RR": inverse((0.0, 0.1, 0.0), (0.0, 0.0, 0.0))})
    for axis in figure.axes:
        for line in marked(axis):
            assert all(inside(axis, line)), points(line)


def test_leakage_shows_the_numbers_and_the_constant_image():
    found = leak()
    figure = figures.leakage_figure(found)
    for axis, field, constant in zip(figure.axes, ("adjusted", "psnr", "ssim"), (0, 10.0, 0.01), strict=True):
        close(points(marked(axis)[0]), [[0, 1, 2], [getattr(one, field) for one in found]])
        (dashed,) = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert set(dashed.get_ydata()) == {constant}


@pytest.mark.parametrize("order", [("", "d2 d3"), ("d10 d11", "d2 d9 d10")])
def test_depths_stand_in_order(order: tuple[str, str]):
    """Depths are in order even if each variant has others."""
    figure = figures.leakage_figure({"Std": leak(order[0]), "RR": leak(order[1])})
    for axis in figure.axes:
        axis.figure.draw_without_rendering()
        labels = [label.get_text() for label in axis.get_xticklabels()]
        assert [int(label[1:]) for label in labels] == sorted({int(name[1:]) for name in " ".join(order).split()})


# --- what cannot be drawn -----------------------------------------------------------------------------------------


REFUSED: dict[str, Callable[[], Figure]] = {
    "no similarity": lambda: figures.similarity_figure({}),
    "no plane": lambda: figures.plane_figure({}),
    "no sweep": lambda: figures.sweep_figure({}),
    "no invertibility": lambda: figures.invertibility_figure({}),
    "no leakage": lambda: figures.leakage_figure({}),
    "no vectors": lambda: figures.vectors_figure(vectors(), count=0),
    "fewer than no vectors": lambda: figures.vectors_figure(vectors(), count=-3),
    "no pictures": lambda: figures.rebuilt_figure(inverse(), count=0),
    "no depths": lambda: figures.rebuilt_figure(inverse(), depths=-1),
    "inputs that are no pictures": lambda: figures.rebuilt_figure(inverse(inputs=drawn(4, 9))),
    "inputs of five channels": lambda: figures.rebuilt_figure(inverse(inputs=drawn(4, 5, 6, 6))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_one_line(case: str):
    with pytest.raises(ValueError, match=r"^[^\n]+\Z") as caught:
        REFUSED[case]()
    assert "matplotlib" not in "".join(str(entry.path) for entry in caught.traceback), "found before it is drawn"


# --- variants -----------------------------------------------------------------------------------------------------


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
    """Contrast of at least 4.5 (WCAG AA)."""

    def light(rgb):
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for value in range(101):
        ground = matplotlib.colormaps[colours](value / 100)
        low, high = sorted((light(ground), light(matplotlib.colors.to_rgb(style.ink_on(ground)))))
        assert (high + 0.05) / (low + 0.05) >= 4.5
