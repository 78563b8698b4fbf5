"""The experiments' own figures: drawn from real runs whatever is missing, and never mixing what is not alike."""

import io
from collections.abc import Sequence
from statistics import stdev

import numpy as np
import pytest
from matplotlib.figure import Figure

from racecar.lab.experiments import experiment
from racecar.lab.running.jobs import make_jobs
from racecar.lab.running.results import Store
from racecar.lab.running.run import Run
from racecar.lab.running.work import Maker, do
from racecar.lab.training.spec import TrainingOptions

SMALL = {
    "digits": ({"shipped": True, "epochs": 2}, ("Std", "RR"), 2),
    "peaks": ({"epochs": 2, "nets": ("linear", "two")}, ("Std", "RR"), 1),
    "information": ({"epochs": 1, "finetune": 1}, ("Std", "RR"), 1),
}

NAMES = list(SMALL)


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> dict[str, list[Run]]:
    """Every experiment run for an epoch or two; information's second seed is made from the first."""
    found = {}
    for name, (config, variants, seeds) in SMALL.items():
        one, store = experiment(name), Store(tmp_path_factory.mktemp(name))
        for job in make_jobs(one, one.Config(**config), variants, range(seeds), None):
            do(job, store, TrainingOptions(), Maker("test", "here"))
        found[name] = list(store.runs())
    found["information"] += [other(run, seed=1) for run in found["information"]]
    return found


class Kept(Run):
    """A run with arrays of its own."""

    arrays = {}  # noqa: RUF012


def other(run: Run, arrays: bool = True, **changes) -> Run:
    """The same run with some of its record changed."""
    copy = Kept({**run.record, **changes}, run.store)
    object.__setattr__(copy, "arrays", run.arrays if arrays else {})
    return copy


def diverged(run: Run) -> Run:
    return other(run, False, status="diverged", metrics={}, tables={}, curves={}, note="not finite")


def draw(name: str, runs: Sequence[Run]) -> dict[str, Figure]:
    figures = experiment(name).figures(runs)
    assert all(isinstance(figure, Figure) for figure in figures.values())
    return figures


@pytest.fixture(scope="module")
def all_drawn(real) -> dict[str, dict[str, Figure]]:
    """The figures of all that was run, where no test changes them."""
    return {name: draw(name, runs) for name, runs in real.items()}


def shown(figure: Figure) -> int:
    """How much there is to see."""
    return sum(len(axis.lines) + len(axis.images) for axis in figure.axes)


# Whatever there is


@pytest.mark.parametrize("name, count", [("digits", 2), ("peaks", 4), ("information", 3)])
def test_all_of_it(layout, real, name, count):
    """Laid out and drawn to the end."""
    figures = draw(name, real[name])
    assert len(figures) == count
    assert all(map(shown, figures.values()))
    for figure in figures.values():
        figure.savefig(io.BytesIO(), format="svg")


def test_titles_are_unique(all_drawn):
    titles = [title for figures in all_drawn.values() for title in figures]
    assert len(set(titles)) == len(titles)


CASES = {
    "one variant": lambda runs: [run for run in runs if run.variant == "RR"],
    "one seed": lambda runs: [run for run in runs if run.seed == 1],
    "one run": lambda runs: [run for run in runs if run.stage == "A"][:1],
    "no order": lambda runs: runs[::-1],
    "other seeds for each variant": lambda runs: [run for run in runs if run.seed == (run.variant == "Std")],
    "one diverged": lambda runs: [diverged(run) if (run.variant, run.seed) == ("RR", 0) else run for run in runs],
    "a variant diverged": lambda runs: [diverged(run) if run.variant == "Std" else run for run in runs],
    "a seed diverged": lambda runs: [diverged(run) if run.seed == 0 else run for run in runs],
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
    "no runs": lambda runs: [],
    "all diverged": lambda runs: list(map(diverged, runs)),
    "no arrays and no tables": lambda runs: [other(run, False, tables={}, metrics={}) for run in runs],
}


@pytest.mark.parametrize("case", NOTHING)
@pytest.mark.parametrize("name", NAMES)
def test_with_nothing_to_show(real, name, case):
    """No figure rather than an empty one, or an error."""
    assert draw(name, NOTHING[case](real[name])) == {}


@pytest.mark.parametrize("stage", ["A", "AA", "AB", "B"])
def test_one_stage_of_information(real, stage):
    figures = draw("information", [run for run in real["information"] if run.stage == stage])
    assert all(map(shown, figures.values()))
    assert bool(figures) is True


def test_a_search_has_accuracies_only(real):
    """Its runs keep no planes."""
    figures = draw("information", [other(run, tables={}) for run in real["information"]])
    assert len(figures) == 1
    assert "Accuracy" in next(iter(figures))


@pytest.mark.parametrize("name, variants", [("digits", ("WD", "Pre")), ("information", ("WD", "Drop", "lRR", "RR1"))])
def test_other_variants(real, name, variants):
    runs = [other(run, variant=which) for which in variants for run in real[name] if run.variant == "RR"]
    figures = draw(name, runs)
    assert all(map(shown, figures.values()))


# What they show


def find(figures, word):
    (found,) = [figure for title, figure in figures.items() if word in title]
    return found


def test_vectors_are_those_of_the_runs(real, all_drawn):
    """Features in the first two columns, then the vectors of each variant under the sign that makes them bright."""
    figure = find(all_drawn["digits"], "singular vectors")
    runs = {(run.seed, run.variant): run for run in real["digits"]}
    axes = np.array(figure.axes).reshape(2, 2 + 2 * 4)
    for seed, line in enumerate(axes):
        pictures = [axis.images[0].get_array() for axis in line]
        for j in range(2):
            assert np.array_equal(pictures[j], runs[seed, "Std"].arrays["features"][j, 0])
        for v, variant in enumerate(("Std", "RR")):
            for i in range(4):
                truth = runs[seed, variant].arrays["vectors"][i, 0].numpy()
                assert np.allclose(pictures[2 + 4 * v + i], truth * np.sign(truth.sum()))
    assert [axes[0, 2 + 4 * v].get_title("left").split()[0] for v in range(2)] == ["Std", "RR"]


def test_features_are_shown_for_every_seed(real):
    """Also where the first variant has no run."""
    runs = [run for run in real["digits"] if (run.variant, run.seed) != ("Std", 0)]
    figure = find(draw("digits", runs), "singular vectors")
    axes = np.array(figure.axes).reshape(2, -1)
    assert all(axis.images for line in axes for axis in line[:2])


def test_the_strip_shows_the_first_picture_over_training(real, all_drawn):
    figure = find(all_drawn["digits"], "during training")
    runs = {run.variant: run for run in real["digits"] if run.seed == 0}
    axes = np.array(figure.axes).reshape(2, -1)
    for line, variant in zip(axes, ("Std", "RR"), strict=True):
        assert line[0].get_title("left") == variant
        pictures = runs[variant].arrays["rebuilt"]
        assert len(line) == len(pictures)
        for axis, picture in zip(line, pictures, strict=True):
            assert np.array_equal(axis.images[0].get_array(), picture[0, 0])
            assert axis.images[0].get_clim() == (0, 255)


def test_the_strip_shows_all_variants_if_a_seed_has_them(real):
    runs = [diverged(run) if (run.variant, run.seed) == ("RR", 0) else run for run in real["digits"]]
    figure = find(draw("digits", runs), "during training")
    assert [t for axis in figure.axes if (t := axis.get_title("left"))] == ["Std", "RR"]


def planes(figure):
    """{panel: {label: points}}"""
    return {
        axis.get_title(): {line.get_label(): np.column_stack(line.get_data()) for line in axis.lines}
        for axis in figure.axes
    }


def points(runs, variant, stage):
    rows = [run.tables["plane"] for run in runs if (run.variant, run.stage) == (variant, stage)]
    return np.mean([[(row["i_xd"], row["i_dy"]) for row in one] for one in rows], axis=0)


def shifted(run, by, **changes):
    """A run whose plane and accuracy are elsewhere."""
    rows = [{**row, "i_xd": row["i_xd"] + by} for row in run.tables["plane"]]
    sweep = {bins: [[a + by, b] for a, b in pairs] for bins, pairs in run.tables["sweep"].items()}
    metrics = {**run.metrics, "test_accuracy": run.metrics["test_accuracy"] + by / 100}
    return other(run, metrics=metrics, tables={**run.tables, "plane": rows, "sweep": sweep}, **changes)


def test_planes_are_means_over_the_seeds(real):
    runs = [run if run.seed == 0 else shifted(run, -1.0) for run in real["information"]]
    found = planes(find(draw("information", runs), "planes"))
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
    (axis,) = figure.axes
    labels = [text.get_text() for text in axis.get_xticklabels()]
    assert labels == [f"{v}\n{s}" for s in ("A", "AA", "AB") for v in ("Std", "RR")]
    dots = [line.get_ydata() for line in axis.lines if line.get_linestyle() == "None" and line.get_marker() in "o^"]
    for label, values in zip(labels, dots, strict=True):
        variant, stage = label.split("\n")
        truth = [r.metrics["test_accuracy"] for r in runs if (r.variant, r.stage) == (variant, stage)]
        assert sorted(values) == pytest.approx(sorted(truth))
        bars = [box for box in axis.containers if box.get_label() is not None]
        drawn = [line.get_segments()[0] for box in bars for line in box.lines[2]]
        heights = [segment[1, 1] - segment[0, 1] for segment in drawn]  # mean − sd to mean + sd
        assert any(h == pytest.approx(2 * stdev(truth), abs=1e-9) for h in heights)
    scratch = [run.metrics["test_accuracy"] for run in runs if run.stage == "B"]
    (band,) = [patch for patch in axis.patches if patch.get_height() == pytest.approx(np.ptp(scratch))]
    assert band.get_y() == pytest.approx(min(scratch))


# What is not alike


DIFFERENT = {
    "coefficients": lambda run: {"coefficient": 0.7} if run.variant == "RR" else None,
    "tasks": lambda run: {"config": {**run.config, "source": "var_u"}},
    "optimisers": lambda run: {"config": {**run.config, "optimiser": "sgd"}},
    "learning rates": lambda run: {"config": {**run.config, "lr": 0.5}},
    "lengths": lambda run: {"config": {**run.config, "epochs": 77}},
    "tuned and not": lambda run: {"tuned": {"lr": 0.5}},
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_no_mean_over_what_is_not_alike(real, case):
    """A sweep, or several settings in one folder: every point in a figure is a mean over seeds and nothing else."""
    runs = real["information"]
    changed = [shifted(run, -3.0, **new) for run in runs if (new := DIFFERENT[case](run))]
    figures = draw("information", [*runs, *changed])
    found = [
        (stage, label, line)
        for title, figure in figures.items()
        if "planes" in title
        for stage, lines in planes(figure).items()
        for label, line in lines.items()
    ]
    truths = [
        (stage, variant, points(some, variant, stage))
        for some in (runs, changed)
        for stage in ("A", "AA", "AB")
        for variant in dict.fromkeys(run.variant for run in some)
    ]
    assert len(found) == len(truths)
    for stage, variant, truth in truths:
        assert any(
            stage == at and label.split()[0] == variant and np.allclose(line, truth, atol=1e-5)
            for at, label, line in found
        )
    means = [
        float(line.get_ydata()[0])
        for title, figure in figures.items()
        if "Accuracy" in title
        for line in figure.axes[0].lines
        if line.get_color() == "black" and len(line.get_ydata()) == 1 and line.get_marker() in ("None", None)
    ]
    for stage, variant, _ in truths:
        for some in (runs, changed):
            values = [r.metrics["test_accuracy"] for r in some if (r.variant, r.stage) == (variant, stage)]
            assert not values or any(one == pytest.approx(np.mean(values)) for one in means)


def test_a_sweep_around_what_a_search_chose(real):
    """The figures show what it chose; the sweep has one of its own on every page."""
    tuned = [other(run, tuned={"lr": 1e-3, "coefficient": run.coefficient}) for run in real["information"]]
    swept = [shifted(run, -3.0, coefficient=9.0) for run in tuned if run.variant == "RR"]
    found = planes(find(draw("information", [*tuned, *swept]), "planes"))
    assert list(found["A"]) == ["Std", "RR"]
    assert np.allclose(found["A"]["RR"], points(tuned, "RR", "A"), atol=1e-5)


@pytest.mark.parametrize("name, what", [("digits", "epochs"), ("digits", "coefficient"), ("peaks", "coefficient")])
def test_pictures_of_other_settings_are_beside_not_instead(real, all_drawn, name, what):
    """Both are seen: in figures of their own, or with the coefficient in their name."""
    runs = real[name]
    new = [
        other(run, config={**run.config, "epochs": 99}) if what == "epochs" else other(run, coefficient=0.123)
        for run in runs
        if what == "epochs" or run.variant == "RR"
    ]
    before, after = all_drawn[name], draw(name, [*runs, *new])
    assert sum(map(shown, after.values())) > sum(map(shown, before.values()))
