"""Figures: that they show the numbers, and that they fit into a page."""

from racecar.inspect.style import COLOURS
from racecar_lab.experiment import Paper
from racecar_lab.report.groups import gather
from racecar_lab.report.run_figures import curves, curves_figure, runs_figure, usual_figures
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
        record("RR", seed, {"m": 10 * weight + seed}, weight=weight, status="diverged" if weight > 3 else "finished")
        for weight in weights
        for seed in (0, 2)
    ]
    return gather(runs([*found, record("Std", 0, {"m": 3.0}), record("Std", 1, {"m": 5.0})]))


def test_curves_are_averaged_where_they_have_points():
    """One run is shorter, and one has a gap."""
    given = [
        {"epoch": [1, 2, 3], "loss": [4.0, 3.0, 2.0]},
        {"epoch": [1, 2], "loss": [2.0, None]},
        {"epoch": [1], "loss": [0.5, 0.6]},  # does not fit together
    ]
    groups = gather(runs([record("RR", seed, curves=one) for seed, one in enumerate(given)]))
    (axis,) = curves_figure(groups, "A", "loss").axes
    assert lines(axis, COLOURS["RR"]) == [[[1, 3.0], [2, 3.0], [3, 2.0]]]
    assert axis.get_xlabel() == "epoch"


def test_curves_without_anything_to_see():
    (group,) = gather(runs([record(curves={"epoch": [1, 2], "regulariser": [0.0, 0.0], "loss": [None, None]})]))
    assert curves(group) == {}
    (group,) = gather(runs([record()]))
    assert curves(group) == {}


def test_long_curves_are_thinned_and_keep_their_end():
    count = 5003
    curve = {"epoch": list(range(count)), "loss": [float(one) for one in range(count)]}
    (axis,) = curves_figure(gather(runs([record(curves=curve)])), "A", "loss").axes
    (points,) = lines(axis, COLOURS["Std"])
    assert len(points) <= 120
    assert points[-1] == [count - 1, count - 1]


def test_every_run_is_a_dot():
    groups = swept([1.0])
    rr = next(group for group in groups if group.variant == "RR")
    (axis,) = runs_figure(groups, [("A", "m")], {(rr, "m"): 7.0}).axes
    assert [x for x, _ in lines(axis, COLOURS["RR"])[0]] == [10.0, 12.0]
    assert [line.get_xdata() for line in axis.lines if line.get_marker() == "D"] == [[7.0]]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["Std", "RR"]


def test_a_dead_net_is_counted_and_no_dot():
    dead = "dead: the output is the same for every input"
    given = [record("RR", seed, {"m": 0.9 if seed else 0.1}, note="" if seed else dead) for seed in range(3)]
    figure = runs_figure(gather(runs(given)), [("A", "m")], {})
    (axis,) = figure.axes
    assert [x for x, _ in lines(axis, COLOURS["RR"])[0]] == [0.9, 0.9]
    assert [text.get_text() for text in axis.texts] == ["✕ 1 of 3 dead"]
    assert figure.get_label() == "mean m, stage A: RR 0.9"


def test_stages_stand_on_one_axis():
    given = [record("RR", seed, {"m": seed + 9.0 * (s == "B")}, stage=s) for s in "AB" for seed in range(2)]
    one, other = runs_figure(gather(runs(given)), [("A", "m"), ("B", "m")], {}).axes
    assert one.get_xlim() == other.get_xlim()


def test_each_says_what_is_seen():
    """Means, by hand."""
    figure = runs_figure(swept([0.1, 1.0]), [("A", "m")], {})
    assert figure.get_label() == "mean m, stage A: Std 4, RR 0.1 2, RR 1 11"
    given = [record("RR", seed, curves={"epoch": [1, 2], "loss": [4.0 + seed, 1.0]}) for seed in (0, 2)]
    figure = curves_figure(gather(runs(given)), "A", "loss")
    assert figure.get_label() == "mean loss, stage A: RR from 5 to 1"


def test_letters_are_legible_on_a_telephone():
    """Whatever is drawn: nine variants with two stages and weights, long names, curves."""
    names = ["a variant with a name that is longer than others", *VARIANTS][:9]
    given = [
        record(name, seed, {"m": seed / 3}, weight=c, stage=stage, curves={"epoch": [1, 2], "loss": [3e3, 1]})
        for name in names
        for c in (0.1, 1.0)
        for stage in ("A", "AA")
        for seed in range(2)
    ]
    figures = usual_figures(gather(runs(given)), [("A", "m"), ("AA", "m")])
    assert len(figures) == 1 + 2
    for figure in figures.values():
        legible(figure)


def test_which_figures_there_are():
    """One of every run for each setting, with the paper's where it has one; none of what was not measured."""
    assert len(usual_figures(gather(runs([record(curves={"epoch": [1], "loss": [2.0]})])), [("A", "m")])) == 1
    given = [record("RR", 0, {"m": 1.0}, config={"lr": lr}) for lr in (1, 2)]
    paper = [Paper("m", "A", "RR", 0.5, where={"lr": 2})]
    found = usual_figures(gather(runs(given)), [("A", "m"), ("A", "other")], paper)
    assert [title.partition("interval")[2] for title in found] == [" (lr = 1)", "; ◇: the paper (lr = 2)"]
