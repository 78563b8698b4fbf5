"""Lighter SVG: what is drawn, where and how stays."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from racecar_lab.report import pictures
from racecar_lab.report.svg import light, local

PLACES = ("d", "x", "y", "width", "height")
DRAWN = ("path", "use", "text", "image", "rect")


def draw() -> bytes:
    """Lines, markers, bars, a picture, texts that are turned and such that are not."""
    figure = Figure()
    axes = figure.subplots(2, 2).flat
    rng = np.random.default_rng(0)
    axes[0].plot(rng.normal(size=(90, 2)), label="1.2345 < 6")
    axes[0].legend()
    axes[1].scatter(*rng.normal(size=(2, 40)), marker="D", s=9)
    axes[2].imshow(rng.normal(size=(5, 4)))
    axes[2].set_ylabel("turned")
    axes[3].fill_between(range(9), rng.normal(size=9))
    axes[3].set_xticks([0, 1], ["aslant", "ä"], rotation=30)
    return pictures._draw(figure, "svg")


def drawn(content: bytes) -> list[tuple]:
    """What is drawn, in its order: kind, numbers, style, text, and what the groups around it say."""
    root = ElementTree.fromstring(content)
    sheets = "".join(element.text or "" for element in root.iter() if local(element.tag) == "style")
    classes = dict(re.findall(r"\.(s\d+)\{(.*?)\}", sheets))
    found: list[tuple] = []

    def visit(element, around):
        said = {local(name): text for name, text in element.attrib.items() if name != "id"}
        style = said.pop("style", "") + classes.get(said.pop("class", ""), "")
        said["style"] = re.sub(r"\s", "", style)
        if re.match(r"rotate\(-?0[ .)]", said.get("transform", "")):
            del said["transform"]
        if local(element.tag) in DRAWN:
            places = {name: re.findall(r"-?\d+\.?\d*|[A-Za-z]", said.pop(name, "")) for name in PLACES}
            href = re.sub(r"\s", "", said.pop("href", ""))
            found.append((local(element.tag), places, href, said, (element.text or "").strip(), around))
        for child in element:
            visit(child, around + ((tuple(said.items()),) if said != {"style": ""} else ()))

    visit(root, ())
    return found


def test_the_same_is_drawn():
    before = draw()
    after = light(before)
    assert len(after) < 0.6 * len(before)
    olds, news = drawn(before), drawn(after)
    assert len(olds) == len(news) > 100
    for (kind, places, *rest), (now, there, *others) in zip(olds, news, strict=True):
        assert (kind, rest) == (now, others)
        for name in places:
            assert len(places[name]) == len(there[name])
            for old, new in zip(places[name], there[name], strict=True):
                assert old == new or float(new) == pytest.approx(float(old), abs=0.00501)


def test_all_that_is_referred_to_is_there():
    content = light(draw()).decode()
    ids = re.findall(r' id="([^"]+)"', content)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", content)) == set(ids)


def test_light_twice():
    once = light(draw())
    assert drawn(light(once)) == drawn(once)
