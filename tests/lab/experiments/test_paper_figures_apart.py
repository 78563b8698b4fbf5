"""The experiments' own figures never mix what is not alike."""

import numpy as np
import pytest

from tests.lab.experiments.paper_figure_cases import draw, other, planes, points, shifted, shown

DIFFERENT = {
    "weights": lambda run: {"weight": 0.7} if run.variant == "RR" else None,
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
        if "plane" in title
        for stage, lines in planes({title: figure}).items()
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
        float(line.get_xdata()[0])
        for title, figure in figures.items()
        if "Accuracy" in title
        for axis in figure.axes
        for line in axis.lines
        if len(set(line.get_xdata())) == 1 and line.get_linestyle() == "-"
    ]
    for stage, variant, _ in truths:
        for some in (runs, changed):
            values = [r.metrics["test_accuracy"] for r in some if (r.variant, r.stage) == (variant, stage)]
            assert not values or any(one == pytest.approx(np.mean(values)) for one in means)


def test_a_sweep_around_what_a_search_chose(real):
    """The figures show what it chose; the sweep has one of its own on every page."""
    tuned = [other(run, tuned={"lr": 1e-3, "weight": run.weight}) for run in real["information"]]
    swept = [shifted(run, -3.0, weight=9.0) for run in tuned if run.variant == "RR"]
    found = planes(draw("information", [*tuned, *swept]))
    assert list(found["A"]) == ["Std", "RR"]
    assert np.allclose(found["A"]["RR"], points(tuned, "RR", "A"), atol=1e-5)


@pytest.mark.parametrize("name", ["digits", "peaks"])
def test_pictures_of_other_settings_are_beside_not_instead(real, all_drawn, name):
    """Both are seen, with the weight in their name."""
    runs = real[name]
    new = [other(run, weight=0.123) for run in runs if run.variant == "RR"]
    before, after = all_drawn[name], draw(name, [*runs, *new])
    assert sum(map(shown, after.values())) > sum(map(shown, before.values()))
