"""Figures: that they show the numbers, and that they fit into a page."""

import re
from xml.etree import ElementTree

from racecar.inspect.style import COLOURS, new_figure
from racecar_lab.report import pictures
from racecar_lab.report.gallery import CURVES, EVERY, SWEEP, common_figures
from racecar_lab.report.groups import gather
from racecar_lab.report.pictures import describe, picture
from racecar_lab.report.run_figures import curves, curves_figure, runs_figure, sweep_figure
from racecar_lab.training.variants import VARIANTS
from tests.figures import legible
from tests.lab.report.records import record, runs


def lines(axis, colour):
    """Points of the lines of a variant that have markers."""
    return [
        line.get_xydata().tolist() for line in axis.lines if line.get_color() == colour and line.get_marker() != "None"
    ]


def swept(weights):
    found = [
        record(
            "RR", seed, {"m": 10 * weight + seed}, coefficient=weight, status="diverged" if weight > 3 else "finished"
        )
        for weight in weights
        for seed in (0, 2)
    ]
    return gather(runs([*found, record("Std", 0, {"m": 3.0}), record("Std", 1, {"m": 5.0})]))


def test_sweep():
    figure = sweep_figure(swept([0.1, 1.0, 10.0]).groups, [("A", "m")])
    (axis,) = figure.axes
    assert axis.get_xscale() == "log"
    assert lines(axis, COLOURS["RR"]) == [[[0.1, 2.0], [1.0, 11.0]]]
    (level,) = [line for line in axis.lines if line.get_color() == COLOURS["Std"]]
    assert set(level.get_ydata()) == {4.0}
    assert [text.get_text() for text in axis.texts] == ["✕ 2/2"]


def test_a_coefficient_of_zero_has_a_place():
    (axis,) = sweep_figure(swept([0.0, 0.1, 1.0]).groups, [("A", "m")]).axes
    assert axis.get_xscale() == "symlog"
    assert lines(axis, COLOURS["RR"])[0][0] == [0.0, 1.0]


def test_curves_are_averaged_where_they_have_points():
    """One run is shorter, and one has a gap."""
    given = [
        {"epoch": [1, 2, 3], "loss": [4.0, 3.0, 2.0]},
        {"epoch": [1, 2], "loss": [2.0, None]},
        {"epoch": [1], "loss": [0.5, 0.6]},  # does not fit together
    ]
    groups = gather(runs([record("RR", seed, curves=one) for seed, one in enumerate(given)])).groups
    (axis,) = curves_figure(groups).axes
    assert lines(axis, COLOURS["RR"]) == [[[1, 3.0], [2, 3.0], [3, 2.0]]]
    assert axis.get_xlabel() == "epoch"


def test_curves_without_anything_to_see():
    (group,) = gather(runs([record(curves={"epoch": [1, 2], "regulariser": [0.0, 0.0], "loss": [None, None]})])).groups
    assert curves(group) == {}
    (group,) = gather(runs([record()])).groups
    assert curves(group) == {}


def test_long_curves_are_thinned_and_keep_their_end():
    count = 5003
    curve = {"epoch": list(range(count)), "loss": [float(one) for one in range(count)]}
    (axis,) = curves_figure(gather(runs([record(curves=curve)])).groups).axes
    (points,) = lines(axis, COLOURS["Std"])
    assert len(points) <= 120
    assert points[-1] == [count - 1, count - 1]


def test_every_run_is_a_dot():
    groups = swept([1.0]).groups
    rr = next(group for group in groups if group.variant == "RR")
    (axis,) = runs_figure(groups, [("A", "m")], {(rr, "m"): 7.0}).axes
    assert [x for x, _ in lines(axis, COLOURS["RR"])[0]] == [10.0, 12.0]
    assert [line.get_xdata() for line in axis.lines if line.get_marker() == "D"] == [[7.0]]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["Std", "RR"]


def test_a_dead_net_is_counted_and_no_dot():
    dead = "dead: the output is the same for every input"
    given = [record("RR", seed, {"m": 0.9 if seed else 0.1}, note="" if seed else dead) for seed in range(3)]
    figure = runs_figure(gather(runs(given)).groups, [("A", "m")], {})
    (axis,) = figure.axes
    assert [x for x, _ in lines(axis, COLOURS["RR"])[0]] == [0.9, 0.9]
    assert [text.get_text() for text in axis.texts] == ["✕ 1 of 3 dead"]
    assert figure.get_label() == "mean m, stage A: RR 0.9"


def test_stages_stand_on_one_axis():
    given = [record("RR", seed, {"m": seed + 9.0 * (s == "B")}, stage=s) for s in "AB" for seed in range(2)]
    one, other = runs_figure(gather(runs(given)).groups, [("A", "m"), ("B", "m")], {}).axes
    assert one.get_xlim() == other.get_xlim()


def test_each_says_what_is_seen():
    """Means, by hand."""
    groups = swept([0.1, 1.0]).groups
    assert sweep_figure(groups, [("A", "m")]).get_label() == "mean m, stage A: Std 4, RR 2 at 0.1, 11 at 1"
    given = [record("RR", seed, curves={"epoch": [1, 2], "loss": [4.0 + seed, 1.0]}) for seed in (0, 2)]
    figure = curves_figure(gather(runs(given)).groups)
    assert figure.get_label() == "mean loss, stage A: RR from 5 to 1"
    assert describe(figure, "T") == "T: mean loss, stage A: RR from 5 to 1."


def test_letters_are_legible_on_a_telephone():
    """Whatever is drawn: nine variants with three stages, long names, curves, a sweep."""
    names = ["a variant with a name that is longer than others", *VARIANTS][:9]
    given = [
        record(name, seed, {"m": seed / 3}, coefficient=c, stage=stage, curves={"epoch": [1, 2], "loss": [3e3, 1]})
        for name in names
        for c in (0.1, 1.0)
        for stage in ("A", "AA")
        for seed in range(2)
    ]
    figures = common_figures(gather(runs(given)), [("A", "m"), ("AA", "m")], {}, [])
    drawn = [figure for some in figures.values() for figure in some.values()]
    assert len(drawn) == 1 + 2 + 2
    for figure in drawn:
        legible(figure)


def test_which_figures_there_are():
    def titles(groups):
        return list(common_figures(groups, [("A", "m")], {}, []))

    assert titles(swept([1.0])) == [(EVERY, "")]
    assert titles(swept([0.1, 1.0])) == [(EVERY, ""), (SWEEP, "")]
    assert titles(gather(runs([record(curves={"epoch": [1], "loss": [2.0]})]))) == [(CURVES, "")]
    assert list(common_figures(swept([0.1, 1.0]), [("A", "m")], {}, [], seen=["m"])) == [(SWEEP, "")]


def draw():
    figure, (axes,) = new_figure(1, 2, (4, 2))
    axes[0].plot([1, 2], [1, 2], marker="o", label="<Std> & co")
    axes[0].legend()
    axes[1].imshow([[0.0, 1.0], [0.5, 0.2]])
    axes[0].set(xlabel="epoch", ylabel="loss")
    return figure


def test_inline_svg():
    """Ids of its own that all references find, no name spaces, nothing to load, and the words still words."""
    one, other = picture(draw(), "T", "a"), picture(draw(), "T", "b")
    root = ElementTree.fromstring(one.markup)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(id.startswith("a-") for id in ids)
    assert not set(ids) & set(re.findall(r'id="([^"]+)"', other.markup))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', one.markup)
    assert used
    assert {a or b for a, b in used} <= set(ids)
    assert "http" not in one.markup
    assert "<style" not in one.markup
    assert "<metadata" not in one.markup
    assert "&lt;Std&gt; &amp; co" in one.markup
    assert root.get("aria-label") == one.alt == "T; loss over epoch; for <Std> & co."
    assert (one.width, one.height) == (384, 192)
    assert ElementTree.fromstring(one.content).get("width")  # the file stands alone


def test_large_figures_are_png(monkeypatch):
    monkeypatch.setattr(pictures, "LARGEST", 100)
    one = picture(draw(), "T", "a")
    assert (one.suffix, one.markup) == ("png", "")
    assert one.content.startswith(b"\x89PNG")
    assert one.data.startswith("data:image/png;base64,iVBOR")


def test_the_same_figure_gives_the_same_file():
    assert picture(draw(), "T", "a").content == picture(draw(), "T", "a").content


def test_many_panels_are_counted_in_words():
    figure, axes = new_figure(2, 4, (4, 2))
    for i, axis in enumerate(axis for line in axes for axis in line):
        axis.set_title(f"panel {i}")
    assert describe(figure, "T") == "T; 8 panels."
