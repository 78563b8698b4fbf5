"""Figure files are complete, reproducible and independent of the user's matplotlib settings."""

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from racecar.inspect import figures, style
from racecar.inspect.leakage import Leak, Leakage
from tests.inspect.figure_cases import (
    DEPTHS,
    VARIANTS,
    drawn,
    history,
    inverse,
    leak,
    plane,
    settings,
    similar,
    variants,
    vectors,
)

pytestmark = pytest.mark.usefixtures("nothing_of_the_user_s")


# --- results made by hand -----------------------------------------------------------------------------------------


CASES: dict[str, tuple[Callable[[], Figure], list[str]]] = {
    "vectors, grey": (lambda: figures.vectors_figure(vectors()), ["conv1: right singular vectors by value", "0.5,"]),
    "vectors, colour": (lambda: figures.vectors_figure(vectors(4, (3, 4, 4), layer="stem")), ["stem: right singular"]),
    "vectors, no pictures": (
        lambda: figures.vectors_figure(vectors(5, (9,), False, "fc")),
        ["fc: right singular", "2"],
    ),
    "vectors, one": (lambda: figures.vectors_figure(vectors(1)), ["conv1: right singular", "2, 100.0%"]),
    "vectors, many": (lambda: figures.vectors_figure(vectors(16, (5, 3, 3)), count=9), ["conv1: right singular"]),
    "vectors, nameless": (lambda: figures.vectors_figure(vectors(2, layer="")), ["the model: right singular"]),
    "spectrum": (lambda: figures.spectrum_figure(vectors()), ["conv1: singular values", "rank", "1: length is kept"]),
    "spectrum, one": (lambda: figures.spectrum_figure(vectors(1)), ["share of the data's energy"]),
    "similarity": (
        lambda: figures.similarity_figure(similar()),
        ["degrees", "best match, LPIPS ↓", "best match, SSIM ↑"],
    ),
    "similarity, no pictures": (
        lambda: figures.similarity_figure(similar(0, False, False)),
        ["best match, |cosine| ↑"],
    ),
    "similarities": (lambda: figures.similarity_figure(variants(similar)), [*VARIANTS]),
    "plane": (lambda: figures.plane_figure(plane()), ["I(X;D) in bits", "I(D;Y) in bits", *DEPTHS, "d4"]),
    "planes": (lambda: figures.plane_figure(variants(plane)), [*VARIANTS, *DEPTHS]),
    "plane, all at the ceiling": (lambda: figures.plane_figure(plane(layers=1)), ["d1"]),
    "plane, one input": (lambda: figures.plane_figure(plane(h_x=0.0)), DEPTHS),
    "sweep": (lambda: figures.sweep_figure({n: plane(n) for n in (2, 10, 100)}), [*DEPTHS, "bins", "I(D;Y) in bits"]),
    "sweep, one": (lambda: figures.sweep_figure({30: plane()}), DEPTHS),
    "invertibility": (lambda: figures.invertibility_figure(inverse()), [*DEPTHS, "each layer from its own output"]),
    "invertibilities": (
        lambda: figures.invertibility_figure(variants(lambda i: inverse((0.1 * i, 0.2, None), (0.1 * i + 0.1,) * 3))),
        [*VARIANTS, *DEPTHS],
    ),
    "invertibility, perfect": (lambda: figures.invertibility_figure(inverse((0.0,) * 3, (0.0,) * 3)), DEPTHS),
    "invertibility, nowhere": (lambda: figures.invertibility_figure(inverse((None,) * 3, (None,) * 3)), DEPTHS),
    "invertibility, diverged": (
        lambda: figures.invertibility_figure(inverse((math.inf, math.nan, 1e70), (math.inf, 1e-30, math.nan))),
        DEPTHS,
    ),
    "invertibility, deep": (lambda: figures.invertibility_figure(inverse((0.5,) * 50, (0.2,) * 50)), ["m"]),
    "rebuilt": (lambda: figures.rebuilt_figure(inverse()), ["input", "from d2", "from d3", "from d4"]),
    "rebuilt, grey": (lambda: figures.rebuilt_figure(inverse(inputs=drawn(2, 1, 5, 7))), ["from d4"]),
    "rebuilt, one": (lambda: figures.rebuilt_figure(inverse(inputs=drawn(1, 3, 5, 5))), ["from d4"]),
    "rebuilt, from nowhere": (lambda: figures.rebuilt_figure(inverse(depths=0)), ["input"]),
    "rebuilt, constant": (lambda: figures.rebuilt_figure(inverse(inputs=torch.full((3, 3, 4, 4), 0.3))), ["from d2"]),
    "rebuilt, deep": (
        lambda: figures.rebuilt_figure(inverse((0.5,) * 30, (0.5,) * 30), count=2, depths=5),
        ["from d2", "from d31"],
    ),
    "leakage": (lambda: figures.leakage_figure(leak()), ["PSNR in dB", "SSIM", "d2", "d4", "rebuilt from"]),
    "leakage, no pictures": (lambda: figures.leakage_figure(leak(pictures=False)), ["share of the input's variation"]),
    "leakage, empty": (lambda: figures.leakage_figure(leak("")), ["rebuilt from"]),
    "leakages": (lambda: figures.leakage_figure(variants(lambda i: leak(seed=i))), [*VARIANTS, "d2", "d3", "d4"]),
    "leakages, some empty": (
        lambda: figures.leakage_figure({"Std": leak(""), "RR": leak(), "Ort": leak("")}),
        ["Std", "RR", "d2", "d3", "d4"],
    ),
    "plasticity": (lambda: figures.plasticity_figure(history()), ["first", "second", "dead units, %", "step"]),
    "plasticity, no linear map": (lambda: figures.plasticity_figure(history(known=False)), ["gain along the data"]),
    "leakage, perfect": (lambda: figures.leakage_figure(perfect()), ["d2", "d3"]),
}


def perfect() -> Leakage:
    """A leakage with infinite PSNR, as of an exact reverse pass."""
    return Leakage(tuple(Leak(f"d{i}", "", 1.0, 1.0, math.inf, 1.0, "") for i in (2, 3)), 10.0, 0.1, ())


# --- files --------------------------------------------------------------------------------------------------------


FILES = ("vectors, colour", "similarity, no pictures", "plane")


def written(svg: bytes) -> list[str]:
    """The contents of all <text> elements of an SVG file."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def saved(figure: Figure, path: Path) -> list[bytes]:
    return [file.read_bytes() for file in style.save(figure, path)]


@pytest.mark.parametrize("case", FILES)
def test_files(tmp_path: Path, case: str):
    """Both files are valid and not blank, and text in the SVG is text."""
    draw, texts = CASES[case]
    figure = draw()
    assert type(figure) is Figure
    svg, png = style.save(figure, tmp_path / "one")
    assert (svg, png) == (tmp_path / "one.svg", tmp_path / "one.png")
    found = written(svg.read_bytes())
    for text in texts:
        assert any(text in one for one in found), f"{text!r} is not among {found}"
    with Image.open(png) as picture:
        width, height = (round(150 * inches) for inches in figure.get_size_inches())
        assert abs(picture.width - width) <= 1
        assert abs(picture.height - height) <= 1
        assert np.asarray(picture.convert("L")).std() > 2, "it is not blank"
    assert sorted(tmp_path.iterdir()) == [png, svg]


def test_the_same_figure_gives_the_same_files(tmp_path: Path):
    """Neither drawing nor saving again changes a byte."""
    figure, again = (CASES["rebuilt, one"][0]() for _ in range(2))
    first = saved(figure, tmp_path / "first")
    assert saved(again, tmp_path / "again") == first
    assert saved(figure, tmp_path / "twice") == first


CROWDED = ("planes", "rebuilt, deep", "leakages")


@pytest.mark.parametrize("case", [case for case in CASES if case not in FILES])
def test_every_case_can_be_drawn(case: str, request: pytest.FixtureRequest):
    """No warning is raised and all names are shown; the most crowded figures are laid out, too."""
    if case not in CROWDED:
        request.getfixturevalue("no_layout")
    draw, texts = CASES[case]
    figure = draw()
    found = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    for text in texts:
        assert any(text in one for one in found), f"{text!r} is not among {found}"


def test_every_function_has_a_case():
    names = {
        name for name, one in vars(figures).items() if name.endswith("_figure") and one.__module__ == figures.__name__
    }
    code = " ".join(str(one.__code__.co_names) for one, _ in CASES.values())
    assert names
    assert [name for name in names if name not in code] == []


def test_paths(tmp_path: Path):
    figure = Figure(figsize=(1, 1))
    svg, png = style.save(figure, str(tmp_path / "folder" / "layer.1"))
    assert (svg.name, png.name) == ("layer.1.svg", "layer.1.png")
    assert svg.exists()
    assert png.exists()


def test_a_failed_save_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    figure = Figure(figsize=(1, 1))
    files = style.save(figure, tmp_path / "a")
    before = [path.read_bytes() for path in files]

    def fails(file: Any, **options: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", fails)
    with pytest.raises(OSError, match="disk full"):
        style.save(figure, tmp_path / "a")
    assert [path.read_bytes() for path in files] == before
    assert len(list(tmp_path.iterdir())) == 2


USER = {
    "axes.facecolor": "black",
    "axes.labelsize": 20.0,
    "axes.unicode_minus": False,
    "figure.facecolor": "red",
    "figure.dpi": 37.0,
    "font.family": ["serif"],
    "image.origin": "lower",
    "lines.linewidth": 9.0,
    "lines.linestyle": "--",
    "savefig.bbox": "tight",
    "savefig.facecolor": "green",
    "savefig.transparent": True,
    "svg.fonttype": "path",
    "text.color": "yellow",
    "xtick.labelsize": 3.0,
    "figure.constrained_layout.h_pad": 1.0,
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return saved(CASES["vectors, one"][0](), tmp_path_factory.mktemp("figures") / "ours")


SAVING = tuple(name for name in USER if name.startswith(("savefig.", "image.", "figure.dpi")))
"""These could hide what others do: they are tried apart."""


@pytest.mark.parametrize("names", [SAVING, tuple(name for name in USER if name not in SAVING)])
def test_the_user_s_settings_have_no_influence(tmp_path: Path, ours: list[bytes], names: tuple[str, ...]):
    """In two groups, so that no setting hides the effect of another."""
    with matplotlib.rc_context({name: USER[name] for name in names}):
        before = settings()
        assert saved(CASES["vectors, one"][0](), tmp_path / "theirs") == ours
        assert settings() == before
