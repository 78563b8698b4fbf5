"""Figures of few labels: the map by hand, and which runs stand against which."""

import numpy as np
import pytest

from racecar_lab.experiments.few_labels.figures import all_figures, gains
from racecar_lab.running.run import Run
from tests.lab.experiments.few_labels_cases import record

WHERE = "Where it helps: RR − Std in points (± sd) by labels per class, linear probe"
LABELS = "Accuracy on the new task over labels per class"


def cells(figure):
    """What the table of gains says, row by row."""
    (axis,) = figure.axes
    rows = [label.get_text().replace("\n", " ") for label in axis.get_yticklabels()]
    said = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in axis.texts}
    return {row: [said[i, j] for j in range(2) if (i, j) in said] for i, row in enumerate(rows)}


def test_the_table_by_hand():
    runs = []
    for norm, gain in (("none", 0.1), ("batch", -0.05)):
        for depth in (3, 6):
            for seed in range(3):
                runs.append(record("Std", seed, 0.5 + 0.1 * seed, norm=norm, depth=depth))
                extra = gain + 0.01 * depth + 0.02 * (seed - 1)
                runs.append(record("RR", seed, 0.5 + 0.1 * seed + extra, 0.1, norm=norm, depth=depth))
    runs.append(record("RR", 7, 0.9, 0.1, norm="none", depth=3))  # no Std of that seed
    runs.append(record("RR", 0, 0.0, 1.0, "diverged", norm="none", depth=3))
    assert len(gains(runs)) == 4
    figure = all_figures(runs)[WHERE]
    wanted = {("none", 3): "+13.0", ("none", 6): "+16.0", ("batch", 3): "−2.0", ("batch", 6): "+1.0"}
    assert {row: said[0] for row, said in cells(figure).items()} == {
        f"norm {norm}, depth {depth}": f"{mean}\n± 2.0" for (norm, depth), mean in wanted.items()
    }


def test_a_net_that_died_is_counted_and_no_gain():
    """With it the gain of the first setting would be −13 points; where all died there is none."""
    runs = []
    for norm, dead in (("none", (0,)), ("batch", (0, 1, 2))):
        for seed in range(3):
            note = "dead: the output is the same for every input" if seed in dead else ""
            runs.append(record("Std", seed, 0.5, norm=norm))
            runs.append(Run({**record("RR", seed, 0.0 if note else 0.6, 0.1, norm=norm).record, "note": note}))
    figures = all_figures(runs)
    assert cells(figures[WHERE]) == {"norm none; ✕ 1 dead": ["+10.0\n± 0.0"] * 2, "norm batch; ✕ 3 dead": ["dead"] * 2}
    (axis,) = figures[f"{LABELS}, linear probe (norm = none)"].axes
    assert {line.get_label(): line.get_ydata()[0] for line in axis.lines}["RR"] == pytest.approx(0.6)
    assert [text.get_text() for text in axis.texts] == ["✕ RR: 1 of 3 nets died"]


def test_settings_that_say_nothing_to_std():
    """RR with a larger slice, other layers or a weight that fades is held against the Std that there is, but not
    against the one that was trained longer."""
    runs = [record("Std", seed, 0.5 + 0.1 * seed) for seed in range(3)]
    runs += [record("Std", seed, 0.0, longer=True) for seed in range(3)]
    for change, gain in (({}, 0.1), ({"fraction": 1.0}, 0.2), ({"layers": "late"}, 0.3), ({"decay": True}, -0.1)):
        runs += [record("RR", seed, 0.5 + 0.1 * seed + gain, 0.1, **change) for seed in range(3)]
    runs += [record("RR", seed, 0.9, 0.1, augment=True) for seed in range(3)]  # which Std does depend on
    assert [cell["probe_2"].mean for cell in gains(runs).values()] == pytest.approx([0.1, 0.2, 0.3, -0.1])


def test_lines_beside_the_usual_ones():
    """One figure for each setting, in which Std's longer training and a larger slice are lines of their own; of many
    settings, those with a pair alone are on the map only."""
    runs = []
    for norm in ("none", "batch"):
        runs += [record("Std", seed, 0.5, norm=norm) for seed in range(2)]
        runs += [record("RR", seed, 0.6, 0.1, norm=norm) for seed in range(2)]
    assert len([title for title in all_figures(runs) if title.startswith(LABELS)]) == 2 * 2
    runs += [record(name, 0, 0.5, c, images=n) for name, c in (("Std", None), ("RR", 0.1)) for n in (1, 2, 3)]
    runs += [record("Std", seed, 0.7, longer=True) for seed in range(2)]
    runs += [record("RR", seed, 0.8, 0.1, fraction=1.0) for seed in range(2)]
    figures = all_figures(runs)
    titles = [title for title in figures if title.startswith(LABELS)]
    where = "(norm = none, images = 4000)"
    assert titles == [f"{LABELS}, linear probe {where}", f"{LABELS}, fine-tuned {where}"]
    for title in titles:
        (axis,) = figures[title].axes
        found = {line.get_label(): line.get_ydata()[0] for line in axis.lines if line.get_label() != "untrained"}
        less = 0.0 if "probe" in title else 0.1
        wanted = {"Std": 0.5, "Std longer": 0.7, "RR": 0.6, "RR fraction 1": 0.8}
        assert found == pytest.approx({name: value - less for name, value in wanted.items()})
        assert list(found) == list(wanted)


def test_accuracy_over_labels():
    runs = [record(name, seed, 0.5 + 0.1 * seed, c) for name, c in (("Std", None), ("RR", 0.1)) for seed in range(3)]
    probed, tuned = all_figures(runs).values()
    (probe_axis,), (tune_axis,) = probed.axes, tuned.axes
    lines = {line.get_label(): line for line in probe_axis.lines}
    assert set(lines) == {"Std", "RR", "untrained"}
    assert lines["RR"].get_xdata().tolist() == [2, 10]
    np.testing.assert_allclose(lines["RR"].get_ydata(), [0.6, 0.7])
    low, high = (probe_axis.collections[0].get_paths()[0].vertices[:, 1].__getattribute__(f)() for f in ("min", "max"))
    assert (low, high) == (pytest.approx(0.5), pytest.approx(0.8))  # one standard deviation, 0.1, on either side
    assert {line.get_label() for line in tune_axis.lines} == {"Std", "RR"}
    assert all_figures([]) == {}
