"""Figures of few labels: the map by hand, and which runs stand against which."""

import numpy as np
import pytest

from racecar.lab.experiments.few_labels.figures import Gain, all_figures, gains, table
from tests.lab.experiments.few_labels_cases import record


def test_the_map_by_hand():
    runs = []
    for norm, gain in (("none", 0.1), ("batch", -0.05)):
        for depth in (3, 6):
            for seed in range(3):
                runs.append(record("Std", seed, 0.5 + 0.1 * seed, norm=norm, depth=depth))
                extra = gain + 0.01 * depth + 0.02 * (seed - 1)
                runs.append(record("RR", seed, 0.5 + 0.1 * seed + extra, 0.1, norm=norm, depth=depth))
    runs.append(record("RR", 7, 0.9, 0.1, norm="none", depth=3))  # no Std of that seed
    runs.append(record("RR", 0, 0.0, 1.0, "diverged", norm="none", depth=3))
    cells = gains(runs)
    assert len(cells) == 4
    grid = table(cells, "norm", "depth", "probe_2")
    wanted = {("none", 3): 0.13, ("none", 6): 0.16, ("batch", 3): -0.02, ("batch", 6): 0.01}
    assert {where: gain.mean for where, gain in grid.items()} == pytest.approx(wanted)
    assert [gain.sd for gain in grid.values()] == pytest.approx([0.02] * 4)
    assert table(cells, "norm", "λ", "probe_2") == {}
    cross = [("none", 3), ("none", 6), ("none", 9), ("batch", 3)]
    assert (
        table({(("norm", a), ("depth", b)): {"probe_2": Gain(0.1, 0.0)} for a, b in cross}, "norm", "depth", "probe_2")
        == {}
    )
    figures = all_figures(runs)
    texts = {title: [t.get_text() for axis in f.axes for t in axis.texts] for title, f in figures.items()}
    (title,) = [one for one in texts if "probe at 2 labels: norm and depth" in one]
    assert sorted(texts[title]) == sorted(f"{mean}\n± 2.0" for mean in ("+13.0", "+16.0", "-2.0", "+1.0"))
    (every,) = [one for one in texts if "every setting" in one]
    assert len(texts[every]) == 4 * 3


def test_settings_that_say_nothing_to_std():
    """RR with a larger slice, other layers or a coefficient that fades is held against the Std that there is, but not
    against the one that was trained longer."""
    runs = [record("Std", seed, 0.5 + 0.1 * seed) for seed in range(3)]
    runs += [record("Std", seed, 0.0, longer=True) for seed in range(3)]
    for change, gain in (({}, 0.1), ({"fraction": 1.0}, 0.2), ({"layers": "late"}, 0.3), ({"decay": True}, -0.1)):
        runs += [record("RR", seed, 0.5 + 0.1 * seed + gain, 0.1, **change) for seed in range(3)]
    runs += [record("RR", seed, 0.9, 0.1, augment=True) for seed in range(3)]  # which Std does depend on
    assert [cell["probe_2"].mean for cell in gains(runs).values()] == pytest.approx([0.1, 0.2, 0.3, -0.1])


def test_rows_say_what_tells_them_from_most():
    runs = []
    changes = ({}, {"norm": "batch"}, {"depth": 6}, {"images": 9}, {"augment": True}, {"decay": True})
    for change in changes:
        runs += [record(name, seed, 0.5, c, **change) for name, c in (("Std", None), ("RR", 0.1)) for seed in (0, 1)]
    (axis,) = all_figures(runs)["Where it helps: RR − Std in points, every setting"].axes
    found = [label.get_text() for label in axis.get_yticklabels()]
    assert sorted(found) == ["as most", "augment True", "decay True", "depth 6", "images 9", "norm batch"]
    assert axis.get_xlabel() == "most: norm none, images 4000, augment False, depth 3, decay False"


def test_lines_beside_the_usual_ones():
    """One figure for each setting, in which Std's longer training and a larger slice are lines of their own; of many
    settings, those with a pair alone are on the map only."""
    runs = []
    for norm in ("none", "batch"):
        runs += [record("Std", seed, 0.5, norm=norm) for seed in range(2)]
        runs += [record("RR", seed, 0.6, 0.1, norm=norm) for seed in range(2)]
    assert len([title for title in all_figures(runs) if title.startswith("Accuracy")]) == 2
    runs += [record(name, 0, 0.5, c, images=n) for name, c in (("Std", None), ("RR", 0.1)) for n in (1, 2, 3)]
    runs += [record("Std", seed, 0.7, longer=True) for seed in range(2)]
    runs += [record("RR", seed, 0.8, 0.1, fraction=1.0) for seed in range(2)]
    figures = all_figures(runs)
    titles = [title for title in figures if title.startswith("Accuracy")]
    assert titles == ["Accuracy on the new task over labels per class (norm = none, images = 4000)"]
    for axis in figures[titles[0]].axes:
        found = {line.get_label(): line.get_ydata()[0] for line in axis.lines if line.get_label() != "untrained"}
        less = 0.0 if "probe" in axis.get_title() else 0.1
        wanted = {"Std": 0.5, "Std longer": 0.7, "RR": 0.6, "RR fraction 1": 0.8}
        assert found == pytest.approx({name: value - less for name, value in wanted.items()})
        assert list(found) == list(wanted)


def test_accuracy_over_labels():
    runs = [record(name, seed, 0.5 + 0.1 * seed, c) for name, c in (("Std", None), ("RR", 0.1)) for seed in range(3)]
    (figure,) = all_figures(runs).values()
    probe_axis, tune_axis = figure.axes
    lines = {line.get_label(): line for line in probe_axis.lines}
    assert set(lines) == {"Std", "RR", "untrained"}
    assert lines["RR"].get_xdata().tolist() == [2, 10]
    np.testing.assert_allclose(lines["RR"].get_ydata(), [0.6, 0.7])
    low, high = (probe_axis.collections[0].get_paths()[0].vertices[:, 1].__getattribute__(f)() for f in ("min", "max"))
    assert (low, high) == (pytest.approx(0.5), pytest.approx(0.8))  # one standard deviation, 0.1, on either side
    assert {line.get_label() for line in tune_axis.lines} == {"Std", "RR"}
    assert all_figures([]) == {}
