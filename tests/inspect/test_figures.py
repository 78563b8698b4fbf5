"""Figures: what they show is what was found, and they depend on nothing but that."""

import colorsys
import math
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.colors
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from torch import Tensor, nn

from racecar.inspect import figures, invertibility, leakage, style
from racecar.inspect.information_plane import InformationPlane, PlaneRow
from racecar.inspect.invertibility import Depth, Invertibility
from racecar.inspect.leakage import Leak, Leakage
from racecar.inspect.similarity import Matches, Similarity
from racecar.inspect.singular_vectors import SingularVectors
from tests.networks import NETWORKS

VARIANTS = ("Std", "Ort", "Pre", "RR", "RR1", "lRR")


def settings() -> dict[str, Any]:
    """All of matplotlib's but the backend, which loads pyplot when it is looked at."""
    return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != "backend"}


@pytest.fixture(autouse=True)
def nothing_of_the_user_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No figure may load pyplot, with its windows and its list of open figures, or change a setting."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    before = settings()
    yield
    assert settings() == before


@pytest.fixture
def no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is not laid out: that takes most of the time."""
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda layout, figure: None)


# --- results made by hand -----------------------------------------------------------------------------------------


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def vectors(k: int = 5, shape: tuple[int, ...] = (1, 4, 4), data: bool = True, layer: str = "conv1") -> SingularVectors:
    rows = torch.linalg.qr(drawn(math.prod(shape), k) - 0.5)[0].T
    values = torch.linspace(2, 0.5, k, dtype=torch.float64)
    return SingularVectors(layer, values, rows, shape, drawn(k).softmax(0) if data else None, False, "value")


def similar(seed: int = 0, pictures: bool = True, lpips: bool = True) -> Similarity:
    def matches(distance: bool = False) -> Matches:
        return Matches(drawn(3, 4, seed=seed), distance)

    angles = drawn(3, seed=seed).sort()[0] * math.pi / 2
    return Similarity(angles, matches(), matches() if pictures else None, matches(True) if lpips else None)


def plane(seed: int = 0, h_x: float = 4.0, h_y: float = 1.0, layers: int = 4) -> InformationPlane:
    """From the input, which is at the ceiling, up."""
    share = [1.0, *drawn(layers - 1, seed=seed).sort(descending=True)[0].tolist()]
    rows = [
        PlaneRow(f"d{i + 1}", str(i), "tanh", h_x * s, h_y * s, 3, 30, "fixed", (-1.0, 1.0), s == 1, None)
        for i, s in enumerate(share)
    ]
    return InformationPlane(tuple(rows), 16, 16, h_x, h_y)


def inverse(
    way: tuple[float | None, ...] = (0.5, 0.1, 0.9),
    alone: tuple[float | None, ...] = (0.3, 0.05, 0.9),
    inputs: Tensor | None = None,
    depths: int | None = None,
) -> Invertibility:
    """``depths``: from how many of them the input could be rebuilt."""
    inputs = drawn(4, 3, 6, 6) if inputs is None else inputs
    rebuilt = {f"d{i + 2}": inputs * 0.9**i for i in range(len(way) if depths is None else depths)}
    rows = [
        Depth(f"d{i + 1}", f"layer{i}", "conv2d", one, other, 0.5, 10.0, 0.5, "")
        for i, (one, other) in enumerate(zip(way, alone, strict=True))
    ]
    return Invertibility("full", tuple(rows), inputs, rebuilt, 1.0)


def leak(names: str = "d2 d3 d4", seed: int = 0, pictures: bool = True) -> Leakage:
    leaks = []
    for i, name in enumerate(names.split()):
        adjusted, psnr, ssim = drawn(3, seed=seed + i).tolist()
        leaks.append(
            Leak(name, f"layer{i}", adjusted - 1, adjusted, *((9 + psnr, ssim) if pictures else (None,) * 2), "")
        )
    return Leakage(tuple(leaks), 10.0 if pictures else None, 0.01 if pictures else None, ())


def variants(make: Callable[[int], Any]) -> dict[str, Any]:
    return {name: make(seed) for seed, name in enumerate(VARIANTS)}


DEPTHS = ["d1", "d2", "d3"]
CASES: dict[str, tuple[Callable[[], Figure], list[str]]] = {
    "vectors, grey": (lambda: figures.vectors_figure(vectors()), ["conv1: right singular vectors by value", "0.5,"]),
    "vectors, colour": (lambda: figures.vectors_figure(vectors(4, (3, 4, 4), layer="stem")), ["stem: right singular"]),
    "vectors, no pictures": (
        lambda: figures.vectors_figure(vectors(5, (9,), False, "fc")),
        ["fc: right singular", "2"],
    ),
    "vectors, a kernel in time": (lambda: figures.vectors_figure(vectors(3, (2, 5))), ["conv1: right singular"]),
    "vectors, one": (lambda: figures.vectors_figure(vectors(1)), ["conv1: right singular", "2, 100.0%"]),
    "vectors, of numbers": (lambda: figures.vectors_figure(vectors(1, (1,), False)), ["conv1: right singular"]),
    "vectors, many": (lambda: figures.vectors_figure(vectors(16, (5, 3, 3)), count=9), ["conv1: right singular"]),
    "vectors, nameless": (lambda: figures.vectors_figure(vectors(2, layer="")), ["the model: right singular"]),
    "spectrum": (lambda: figures.spectrum_figure(vectors()), ["conv1: singular values", "rank", "1: length is kept"]),
    "spectrum, no data": (lambda: figures.spectrum_figure(vectors(data=False)), ["conv1: singular values"]),
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
    "plane, one label": (lambda: figures.plane_figure(plane(h_y=0.0)), DEPTHS),
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
    "rebuilt, first depth only": (lambda: figures.rebuilt_figure(inverse(depths=1)), ["input", "from d2"]),
    "rebuilt, from nowhere": (lambda: figures.rebuilt_figure(inverse(depths=0)), ["input"]),
    "rebuilt, constant": (lambda: figures.rebuilt_figure(inverse(inputs=torch.full((3, 3, 4, 4), 0.3))), ["from d2"]),
    "rebuilt, black": (lambda: figures.rebuilt_figure(inverse(inputs=torch.zeros(3, 1, 4, 4))), ["from d2"]),
    "rebuilt, deep": (
        lambda: figures.rebuilt_figure(inverse((0.5,) * 30, (0.5,) * 30), count=2, depths=5),
        ["from d2", "from d31"],
    ),
    "leakage": (lambda: figures.leakage_figure(leak()), ["PSNR in dB", "SSIM", "d2", "d4", "rebuilt from"]),
    "leakage, no pictures": (lambda: figures.leakage_figure(leak(pictures=False)), ["share of the input's variation"]),
    "leakage, first depth only": (lambda: figures.leakage_figure(leak("d2")), ["d2"]),
    "leakage, empty": (lambda: figures.leakage_figure(leak("")), ["rebuilt from"]),
    "leakage, empty, no pictures": (lambda: figures.leakage_figure(leak("", 0, False)), ["rebuilt from"]),
    "leakages": (lambda: figures.leakage_figure(variants(lambda i: leak(seed=i))), [*VARIANTS, "d2", "d3", "d4"]),
    "leakages, some empty": (
        lambda: figures.leakage_figure({"Std": leak(""), "RR": leak(), "Ort": leak("")}),
        ["Std", "RR", "d2", "d3", "d4"],
    ),
    "leakage, perfect": (lambda: figures.leakage_figure(perfect()), ["d2", "d3"]),
    "leakage of constants": (
        lambda: figures.leakage_figure(replace(perfect(), constant_psnr=math.inf, constant_ssim=1.0)),
        ["d2", "d3"],
    ),
}


def perfect() -> Leakage:
    """PSNR is infinite where everything comes back."""
    return Leakage(tuple(Leak(f"d{i}", "", 1.0, 1.0, math.inf, 1.0, "") for i in (2, 3)), 10.0, 0.1, ())


# --- files --------------------------------------------------------------------------------------------------------

FILES = (
    "vectors, colour",
    "spectrum",
    "similarity, no pictures",
    "plane",
    "sweep, one",
    "invertibility",
    "rebuilt, grey",
)
FILES += ("leakage, no pictures",)


def written(svg: bytes) -> list[str]:
    """The texts in an SVG file, as texts."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def saved(figure: Figure, path: Path) -> list[bytes]:
    return [file.read_bytes() for file in style.save(figure, path)]


@pytest.mark.parametrize("case", FILES)
def test_files(tmp_path: Path, case: str):
    """Valid, complete, with letters that are letters."""
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


@pytest.mark.parametrize("case", ["vectors, one", "spectrum, one", "rebuilt, one"])
def test_the_same_figure_gives_the_same_files(tmp_path: Path, case: str):
    """Drawn again, and saved again: saving must not move anything in the figure."""
    figure, again = (CASES[case][0]() for _ in range(2))
    first = saved(figure, tmp_path / "first")
    assert saved(again, tmp_path / "again") == first
    assert saved(figure, tmp_path / "twice") == first


@pytest.mark.parametrize("case", [case for case in CASES if case not in FILES])
def test_every_case_can_be_drawn(case: str):
    """Without a warning, and with its names in it."""
    draw, texts = CASES[case]
    figure = draw()  # which lays it out
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


@pytest.mark.parametrize("names", [SAVING, tuple(name for name in USER if name not in SAVING), tuple(USER)])
def test_the_user_s_settings_have_no_influence(tmp_path: Path, ours: list[bytes], names: tuple[str, ...]):
    """In two groups, and all together."""
    with matplotlib.rc_context({name: USER[name] for name in names}):
        before = settings()
        assert saved(CASES["vectors, one"][0](), tmp_path / "theirs") == ours
        assert settings() == before


def test_settings_come_back_after_an_error():
    before = settings()
    with pytest.raises(ValueError, match="no pictures"):
        figures.rebuilt_figure(inverse(inputs=drawn(4, 9)))
    assert settings() == before


# --- colours ------------------------------------------------------------------------------------------------------

HUES = {"Std": (20, 45), "Ort": (200, 240), "RR": (110, 150), "RR1": (80, 140), "lRR": (0, 20)}
"""Orange, blue, green, light green, salmon; degrees."""


def hls(colour: Any) -> tuple[float, float, float]:
    hue, light, saturation = colorsys.rgb_to_hls(*matplotlib.colors.to_rgb(colour))
    return 360 * hue, light, saturation


def test_the_paper_s_colours():
    looks = {name: style.look(name) for name in VARIANTS}
    for name, (low, high) in HUES.items():
        hue, light, saturation = hls(looks[name]["color"])
        assert low <= hue <= high, name
        assert saturation > 0.4, name
    assert hls(looks["RR1"]["color"])[1] > hls(looks["RR"]["color"])[1] + 0.2, "light green"
    assert 0.6 < hls(looks["lRR"]["color"])[1] < 0.8, "salmon is a light red"
    assert len({look["marker"] for look in looks.values()}) == len(VARIANTS), "told apart without colours"
    assert len({look["color"] for look in looks.values()}) == len(VARIANTS)


def test_other_names_are_told_apart_too():
    """Alone, and beside those of the paper."""
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


def marked(axis: Axes) -> list[Any]:
    """The lines with a marker: data, not help lines."""
    return [line for line in axis.lines if line.get_marker() not in ("None", "", None)]


@pytest.mark.parametrize("name", MANY)
@pytest.mark.usefixtures("no_layout")
def test_variants_have_their_colour_and_marker_in_every_panel(name: str):
    figure = MANY[name]()
    looks = [(style.look(one)["color"], style.look(one)["marker"]) for one in VARIANTS]
    for axis in figure.axes:
        assert [(line.get_color(), line.get_marker()) for line in marked(axis)] == looks
    legends = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    (legend,) = legends
    assert [text.get_text() for text in legend.get_texts()] == list(VARIANTS)
    assert [line.get_color() for line in legend.get_lines()] == [colour for colour, _ in looks]


ONE = {
    "similarity": lambda: figures.similarity_figure(similar()),
    "plane": lambda: figures.plane_figure(plane()),
    "invertibility": lambda: figures.invertibility_figure(inverse()),
    "leakage": lambda: figures.leakage_figure(leak()),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.usefixtures("no_layout")
def test_one_alone_needs_no_legend_and_looks_the_same_everywhere(name: str):
    figure = ONE[name]()
    assert not [axis for axis in figure.axes if axis.get_legend()]
    assert {line.get_color() for axis in figure.axes for line in marked(axis)} == {style.look("RR")["color"]}


# --- what is drawn is what was found ------------------------------------------------------------------------------


def points(line: Any) -> list[list[float]]:
    return [[float(x) for x in line.get_xdata(orig=False)], [float(y) for y in line.get_ydata(orig=False)]]


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(expected, float), rtol=1e-12)


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


def test_planes_of_other_data_fit_in():
    """Planes with other ceilings: none is cut off."""
    found = {"small": plane(h_x=2.0, h_y=0.5), "large": plane(h_x=8.0, h_y=2.0)}
    (axis,) = figures.plane_figure(found).axes
    (low, high), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    for one in found.values():
        assert all(low <= row.i_xd <= high and bottom <= row.i_dy <= top for row in one)


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
    """Which points of a line can be seen, by where they come to lie in the figure."""
    axis.figure.draw_without_rendering()
    places = line.get_transform().transform(np.column_stack(points(line)))
    frame = axis.get_window_extent()
    return [bool(np.isfinite(place).all()) and frame.padded(1).contains(*place) for place in places]


@pytest.mark.usefixtures("no_layout")
def test_no_error_at_all_can_be_seen():
    """0 has no place on a logarithmic axis, and is the best that there is: it must not be what is missing."""
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


@pytest.mark.parametrize("order", [("d2 d4", "d2 d3 d4"), ("", "d2 d3"), ("d10 d11", "d2 d9 d10"), ("d3", "d2")])
@pytest.mark.usefixtures("no_layout")
def test_depths_stand_in_order(order: tuple[str, str]):
    """Also where one variant lacks some that another has."""
    figure = figures.leakage_figure({"Std": leak(order[0]), "RR": leak(order[1])})
    for axis in figure.axes:
        axis.figure.draw_without_rendering()
        labels = [label.get_text() for label in axis.get_xticklabels()]
        assert [int(label[1:]) for label in labels] == sorted({int(name[1:]) for name in " ".join(order).split()})


def pixels(axis: Axes) -> np.ndarray:
    """What a picture shows: (H, W) shades or (H, W, 3)."""
    (image,) = axis.images
    assert image.origin == "upper"
    return np.asarray(image.get_array())


def test_grey_is_zero_in_vectors():
    """White is the largest size in positive direction, black in negative; every picture by itself."""
    rows = torch.tensor([[0.0, 1.0, -2.0, 0.5], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 1.5]])
    found = SingularVectors("fc", torch.ones(3), rows, (1, 2, 2), None, False, "value")
    axes = figures.vectors_figure(found).axes
    close(pixels(axes[0]), [[0.5, 0.75], [0, 0.625]])
    close(pixels(axes[1]), np.full((2, 2), 0.5))
    close(pixels(axes[2]), [[1, 0.5], [0.5, 0.75]])


def test_of_five_channels_the_strongest_is_shown():
    rows = torch.zeros(2, 5, 2, 2)
    rows[0, 3] = torch.tensor([[1.0, -1.0], [0.0, 0.5]])
    rows[0, 1] = 0.5
    rows[1, 4] = torch.tensor([[0.0, 0.0], [0.0, -1.0]])
    found = SingularVectors("conv", torch.ones(2), rows.flatten(1), (5, 2, 2), None, False, "value")
    axes = figures.vectors_figure(found).axes
    close(pixels(axes[0]), [[1, 0], [0.5, 0.75]])
    close(pixels(axes[1]), [[0.5, 0.5], [0.5, 0]])


def test_vectors_of_colour_keep_their_colours():
    rows = torch.tensor([[[[0.0, 2.0]], [[0.0, -2.0]], [[0.0, 1.0]]]])
    found = SingularVectors("conv", torch.ones(1), rows.flatten(1), (3, 1, 2), None, False, "value")
    (axis,) = figures.vectors_figure(found).axes
    close(pixels(axis), [[[0.5, 0.5, 0.5], [1.0, 0.0, 0.75]]])


def test_vectors_say_their_value_and_share():
    found = vectors(3)
    axes = figures.vectors_figure(found, count=2).axes
    titles = [axis.get_title() for axis in axes if axis.axison]
    assert titles == [f"{v:.3g}, {c:.1%}" for v, c in list(zip(found.values, found.carried, strict=True))[:2]]


def test_rebuilt_inputs_share_the_inputs_shades():
    """So that a rebuilt picture that is too dark looks too dark; what leaves the range is clipped."""
    inputs = torch.tensor([[[[0.0, 10.0], [5.0, 2.5]]], [[[10.0, 10.0], [10.0, 10.0]]]])
    found = replace(inverse(inputs=inputs, depths=0), rebuilt={"d2": inputs / 2, "d3": inputs * 4 - 10})
    axes = np.reshape(figures.rebuilt_figure(found).axes, (3, 2))
    close(pixels(axes[0, 0]), [[0, 1], [0.5, 0.25]])
    close(pixels(axes[1, 0]), [[0, 0.5], [0.25, 0.125]])
    close(pixels(axes[2, 0]), [[0, 1], [1, 0]])
    close(pixels(axes[0, 1]), np.ones((2, 2)))
    assert [axis.get_ylabel() for axis in axes[:, 0]] == ["input", "from d2", "from d3"]


@pytest.mark.parametrize("depths, shown", [(1, None), (2, ["d2", "d10"]), (3, ["d2", "d6", "d10"]), (99, None)])
@pytest.mark.usefixtures("no_layout")
def test_rebuilt_from_some_depths(depths: int, shown: list[str] | None):
    figure = figures.rebuilt_figure(inverse((0.5,) * 9, (0.5,) * 9), count=1, depths=depths)
    labels = [axis.get_ylabel().removeprefix("from ") for axis in figure.axes]
    assert labels[0] == "input"
    assert len(labels) == 1 + min(depths, 9)
    assert shown is None or labels[1:] == shown


def test_tensors_of_low_precision():
    found, inputs = vectors(2), drawn(2, 3, 4, 4)
    low = figures.vectors_figure(replace(found, vectors=found.vectors.bfloat16(), values=found.values.half()))
    pairs = [(figures.vectors_figure(found), low)]
    pairs.append([figures.rebuilt_figure(inverse(inputs=one)) for one in (inputs, inputs.bfloat16())])
    for figure, coarse in pairs:
        shown = [[image.get_array() for axis in one.axes for image in axis.images] for one in (figure, coarse)]
        assert len(shown[0]) > 1
        for a, b in zip(*shown, strict=True):
            assert abs(a - b).max() < 0.02


def test_pictures_that_are_not_finite():
    """Of a network that diverged: colour, too, whose shades cannot be masked."""
    inputs = drawn(2, 3, 4, 4)
    worse = inputs.clone()
    worse[0, 0, 0, 0], worse[0, 1, 1, 1], worse[1, 2, 2, 2] = math.nan, math.inf, -math.inf
    figure = figures.rebuilt_figure(
        replace(inverse(inputs=inputs, depths=0), rebuilt={"d2": worse, "d3": worse[:, :1]})
    )
    figure.draw_without_rendering()


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


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.usefixtures("no_layout")
def test_similarities_with_other_measures(turned: bool):
    """One variant was compared as pictures, the other not: draw what there is, or refuse in one line."""
    found = {"Std": similar(0), "RR": similar(1, pictures=False, lpips=False)}
    if turned:
        found = dict(reversed(found.items()))
    try:
        figure = figures.similarity_figure(found)
    except ValueError:
        return
    assert len(marked(figure.axes[0])) == len(marked(figure.axes[1])) == 2


# --- from a network to its figures --------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_layout")
def test_a_residual_network_whose_input_comes_back_from_the_first_depths_only():
    model, x = NETWORKS["resnet_pad"]()
    found = invertibility(model, x)
    leaks = leakage(model, found)
    assert 0 < len(found.rebuilt) < len(found)
    figure = figures.rebuilt_figure(found)
    labels = [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()]
    assert labels == ["input", *(f"from {name}" for name in found.rebuilt)]
    figures.invertibility_figure(found).draw_without_rendering()
    figures.leakage_figure(leaks).draw_without_rendering()


def test_inputs_that_ask_for_a_gradient():
    """What was found keeps no graph alive, and warns of nothing when it is turned into numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 6), nn.Tanh(), nn.Linear(6, 3))
    found = invertibility(model, torch.rand(5, 1, 12, 12, requires_grad=True), range=1.0)
    assert not found.inputs.requires_grad
    assert not any(back.requires_grad for back in found.rebuilt.values())
    figures.rebuilt_figure(found)


@pytest.mark.parametrize("side", [2, 5, 8, 10])
@pytest.mark.usefixtures("no_layout")
def test_pictures_smaller_than_the_usual_window(side: int):
    """Digits of 8 × 8 are pictures as well."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(side * side, 6), nn.Tanh(), nn.Linear(6, 3))
    found = invertibility(model, torch.rand(5, 1, side, side))
    pictures = [image for axis in figures.rebuilt_figure(found).axes for image in axis.images]
    assert {image.get_array().shape[:2] for image in pictures} == {(side, side)}
    assert figures.leakage_figure(leakage(model, found)).axes
