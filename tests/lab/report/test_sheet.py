"""A sheet of figures: all that each of them draws, where nothing hides anything else."""

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from racecar_lab.report import pictures
from racecar_lab.report.gallery import CURVES, EVERY, main_and_more
from racecar_lab.report.pictures import picture
from racecar_lab.report.sheet import sheet
from racecar_lab.report.svg import SPACES, local

SIZES = [(3.0, 2.0), (3.5, 1.5), (9.5, 1.0), (1.0, 1.0), (1.0, 3.0)]
TITLE = "A title that is longer than the figures are wide, by far"


def figure(size) -> Figure:
    found = Figure(figsize=size)
    axis = found.subplots()
    axis.plot([0, 1, 2], [size[0], size[1], 3], marker="o", label=f"of {size}")
    axis.legend()
    return found


@pytest.fixture(scope="module")
def figures():
    return [picture(figure(size), f"{TITLE} {i}", f"f{i}") for i, size in enumerate(SIZES)]


def boxes(root) -> list[list[float]]:
    """Left, top, right and bottom of what stands on the sheet."""
    placed = [one for one in root if local(one.tag) in ("svg", "image")]
    found = [[float(one.get(name)) for name in ("x", "y", "width", "height")] for one in placed]
    return [[x, y, x + width, y + height] for x, y, width, height in found]


def test_all_is_on_it_and_nothing_overlaps(figures):
    root = ElementTree.fromstring(sheet(figures))
    places = boxes(root)
    assert [(right - left, bottom - top) for left, top, right, bottom in places] == [
        (pytest.approx(72 * width), pytest.approx(72 * height)) for width, height in SIZES
    ]
    captions = [[float(one.get("x")), float(one.get("y")) - 9, 0, 0] for one in root if local(one.tag) == "text"]
    captions = [[x, y, x + 1, y + 9] for x, y, *_ in captions]
    for (a, b, c, d), (e, f, g, h) in combinations(places + captions, 2):
        assert c <= e or g <= a or d <= f or h <= b
    _, _, width, height = map(float, root.get("viewBox").split())
    assert all(a >= 0 and c <= width and b >= 0 and d <= height for a, b, c, d in places)
    assert len({top for _, top, *_ in places}) == 3  # two, the wide one, two


def test_what_is_drawn_is_what_was(figures):
    root = ElementTree.fromstring(sheet(figures))
    for one, part in zip(figures, root.findall(f"{{{SPACES['']}}}svg"), strict=True):
        counts = [
            Counter(local(element.tag) for element in tree.iter() if local(element.tag) in ("path", "use", "text"))
            for tree in (ElementTree.fromstring(one.content), part)
        ]
        assert counts[0] == counts[1]
        assert f"of {SIZES[figures.index(one)]}" in [text.text for text in part.iter(f"{{{SPACES['']}}}text")]
    shown = " ".join(one.text for one in root if local(one.tag) == "text")
    assert Counter(re.findall(r"by far (\d)", shown)) == Counter("01234")


def test_all_that_is_referred_to_is_there_once(figures):
    content = sheet(figures).decode()
    ids = re.findall(r' id="([^"]+)"', content)
    assert len(ids) == len(set(ids)) > len(figures)
    assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", content)) == set(ids)


def test_a_figure_too_heavy_for_svg(monkeypatch):
    monkeypatch.setattr(pictures, "LARGEST", 0)
    one = picture(figure((2, 1)), "Heavy", "f")
    (image,) = [each for each in ElementTree.fromstring(sheet([one])) if local(each.tag) == "image"]
    assert image.get(f"{{{SPACES['xlink']}}}href") == one.data


def test_what_markdown_shows(figures):
    """The experiment's own figures; without any its runs, not the curves; what is left is for the HTML page."""
    own, (run, curve) = (
        figures[:2],
        [replace(picture(figure((1, 1)), "T", "f"), place=(kind, "")) for kind in (EVERY, CURVES)],
    )
    assert main_and_more(own, [run, curve]) == (own, [run, curve])
    assert main_and_more([], [run, curve]) == ([run], [curve])
    assert main_and_more([], [curve]) == ([curve], [])
