"""The experiments' own figures: drawn from real runs whatever is missing, and what they show."""

import io

import numpy as np
import pytest

from racecar_lab.datasets import peaks
from racecar_lab.report.statistics import estimate
from tests.figures import legible
from tests.lab.experiments.paper_figure_cases import SMALL, diverged, draw, find, other, planes, points, shifted, shown

NAMES = list(SMALL)


# Whatever there is


@pytest.mark.parametrize("name, count", [("digits", 2), ("peaks", 4), ("information", 5)])
def test_all_of_it(layout, real, name, count):
    """Laid out and drawn to the end."""
    figures = draw(name, real[name])
    assert len(figures) == count
    assert all(map(shown, figures.values()))
    for figure in figures.values():
        figure.savefig(io.BytesIO(), format="svg")
        legible(figure)


CASES = {
    "one run": lambda runs: [run for run in runs if run.stage == "A"][:1],
    "no order": lambda runs: runs[::-1],
    "other seeds for each variant": lambda runs: [run for run in runs if run.seed == (run.variant == "Std")],
    "one diverged": lambda runs: [diverged(run) if (run.variant, run.seed) == ("RR", 0) else run for run in runs],
    "a variant diverged": lambda runs: [diverged(run) if run.variant == "Std" else run for run in runs],
    "stage A diverged": lambda runs: [diverged(r) if r.stage == "A" and r.variant == "RR" else r for r in runs],
    "some arrays are missing": lambda runs: [other(run, run.variant == "RR") for run in runs],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["digits", "information"])
def test_with_gaps(real, name, case):
    """Every figure can be drawn, and each shows something."""
    figures = draw(name, CASES[case](real[name]))
    assert figures
    assert all(map(shown, figures.values()))


NOTHING = {
    "all diverged": lambda runs: list(map(diverged, runs)),
    "no arrays and no tables": lambda runs: [other(run, False, tables={}, metrics={}) for run in runs],
}


@pytest.mark.parametrize("case", NOTHING)
@pytest.mark.parametrize("name", NAMES)
def test_with_nothing_to_show(real, name, case):
    """No figure rather than an empty one, or an error."""
    assert draw(name, NOTHING[case](real[name])) == {}


def test_a_search_has_accuracies_only(real):
    """Its runs keep no planes."""
    figures = draw("information", [other(run, tables={}) for run in real["information"]])
    assert len(figures) == 1
    assert "Accuracy" in next(iter(figures))


# What they show


def test_vectors_are_those_of_the_runs(real, all_drawn):
    """For each seed the features, and below them the vectors of each variant under the sign that makes them bright."""
    figure = find(all_drawn["digits"], "singular vectors")
    runs = {(run.seed, run.variant): run for run in real["digits"]}
    axes = np.array(figure.axes).reshape(2, 3, 4)
    for seed, (features, *lines) in enumerate(axes):
        for axis, picture in zip(features[:2], runs[seed, "Std"].arrays["features"], strict=True):
            assert np.array_equal(axis.images[0].get_array(), picture[0])
        for line, variant in zip(lines, ("Std", "RR"), strict=True):
            assert line[0].get_ylabel() == variant
            for axis, vector in zip(line, runs[seed, variant].arrays["vectors"], strict=False):
                truth = vector[0].numpy()
                assert np.allclose(axis.images[0].get_array(), truth * np.sign(truth.sum()))
    carried = np.mean([runs[seed, "RR"].arrays["shares"][:4].sum() for seed in (0, 1)])
    assert f"RR {carried:.0%}" in figure.get_label()


@pytest.mark.parametrize("name, word", [("digits", "during training"), ("peaks", "784-128-2")])
def test_the_strip_shows_the_first_picture_over_training(real, all_drawn, name, word):
    """The picture itself stands beside what is made of it."""
    (figure,) = [one for title, one in all_drawn[name].items() if word in title and "during training" in title]
    nets = [run for run in real[name] if run.config.get("nets", ["two"]) == ["two"]]
    runs = {run.variant: run for run in nets if run.seed == 0}
    truth = runs["Std"].arrays["features"][0, 0] if name == "digits" else peaks.load(0)[0][0, 0]
    axes = np.array(figure.axes).reshape(2, -1)
    assert [axis.get_title() for axis in axes[0]] == ["d1", "start", "50 %", "end"]
    for line, variant in zip(axes, ("Std", "RR"), strict=True):
        assert line[0].get_ylabel() == variant
        pictures = runs[variant].arrays["rebuilt"]
        for axis, picture in zip(line, [truth, *pictures[:, 0, 0]], strict=True):
            assert np.array_equal(axis.images[0].get_array(), picture)
            assert axis.images[0].get_clim() == (0, 255)


def test_planes_are_means_over_the_seeds(real):
    runs = [run if run.seed == 0 else shifted(run, -1.0) for run in real["information"]]
    found = planes(draw("information", runs))
    assert list(found) == ["A", "AA", "AB"]
    for stage, lines in found.items():
        assert list(lines) == ["Std", "RR"]
        for variant, line in lines.items():
            assert np.allclose(line, points(runs, variant, stage), atol=1e-5)


def test_the_sweep_over_bins(real, all_drawn):
    figure = find(all_drawn["information"], "bins")
    (axis,) = figure.axes
    for line in axis.lines:
        run = next(r for r in real["information"] if (r.variant, r.stage) == (line.get_label(), "A"))
        bins, values = line.get_data()
        assert list(bins) == [5, 10, 20, 30, 50, 100]
        for count, value in zip(bins, values, strict=True):
            hidden = [pair[0] for pair in run.tables["sweep"][str(count)][1:-1]]
            assert len(hidden) == 5
            assert value == pytest.approx(np.mean(hidden))


def test_accuracies_and_the_band(real):
    runs = [run if run.seed == 0 else shifted(run, -1.0) for run in real["information"]]
    figure = find(draw("information", runs), "Accuracy")
    scratch = [run.metrics["test_accuracy"] for run in runs if run.stage == "B"]
    for axis, stage in zip(figure.axes, ("A", "AA", "AB"), strict=True):
        assert axis.get_title() == f"stage {stage}"
        assert [text.get_text() for text in axis.get_yticklabels()] == ["Std", "RR"]
        dots = [line.get_xdata() for line in axis.lines if line.get_linestyle() == "None"]
        for variant, values in zip(("Std", "RR"), dots, strict=True):
            truth = [r.metrics["test_accuracy"] for r in runs if (r.variant, r.stage) == (variant, stage)]
            assert sorted(values) == pytest.approx(sorted(truth))
            ends = estimate(truth).interval()
            assert any(line.get_xdata() == pytest.approx(ends) for line in axis.lines if len(line.get_xdata()) == 2)
            assert f"{variant} {np.mean(truth):.3g}" in figure.get_label()
        (band,) = axis.patches
        assert band.get_x() == pytest.approx(min(scratch))
        assert band.get_width() == pytest.approx(np.ptp(scratch))
        low, high = axis.get_xlim()
        assert low <= min(scratch) <= max(scratch) <= high
