"""All claims in one picture and one sentence; what names mean."""

from itertools import pairwise

import pytest

from racecar_lab.experiment import Claim, Experiment, Paper, Stage
from racecar_lab.report.about import glossary
from racecar_lab.report.claim_words import distinct_settings, sentence
from racecar_lab.report.claims import judge
from racecar_lab.report.forest import THIN, forest, title
from racecar_lab.report.groups import gather
from racecar_lab.report.metrics import meanings, unit
from racecar_lab.report.settings import label
from racecar_lab.report.verdicts import UNDECIDED
from tests.figures import legible
from tests.lab.report.records import record, runs

STD = [0.50, 0.52, 0.48, 0.55, 0.51]
RR = [0.61, 0.60, 0.60, 0.66, 0.60]
CLAIMS = [
    Claim("RR beats Std", "test_accuracy", "A", "RR", "Std"),
    Claim("Std rebuilds better than RR", "ssim", "A", "Std", "RR"),
    Claim("RR is as good as Std", "test_accuracy", "A", "RR", "Std", margin=0.3),
    Claim("Ort beats Std", "test_accuracy", "A", "Ort", "Std"),
]


@pytest.fixture
def findings():
    records = [
        record(name, seed, {"test_accuracy": value, "ssim": 0.1 + value}, config={"lr": 1, "norm": True})
        for name, values in (("Std", STD), ("RR", RR))
        for seed, value in enumerate(values)
    ]
    paper = [Paper("test_accuracy", "A", "RR", 0.9), Paper("test_accuracy", "A", "Std", 0.85)]
    return judge(CLAIMS, gather(runs(records)), paper=paper)


def judged(findings):
    return [finding for finding in findings if finding.judged]


def dots(axis):
    """Means and the paper's gains, from above."""
    return [(*line.get_xdata(), *line.get_ydata()) for line in axis.lines if len(line.get_xdata()) == 1]


def test_the_picture(findings):
    """A panel for each unit; each claim once, with its words, its mean, its interval and the paper's gain."""
    some = judged(findings)
    points, other = forest(some).axes
    assert (points.get_xlabel(), other.get_xlabel()) == ("gain in points", "gain in SSIM")
    said = [text.get_text().replace("\n", " ") for axis in (points, other) for text in axis.texts]
    assert said == ["✓ RR beats Std", "✓ RR is as good as Std", "✗ Std rebuilds better than RR"]
    first = some[0]
    assert list(points.lines[0].get_xdata()) == pytest.approx([100 * end for end in first.interval])
    assert [x for x, _ in dots(points)] == pytest.approx([100 * first.gain.mean, 5.0, 100 * first.gain.mean])
    assert title(some).endswith("(✓ supported, ✗ contradicted, ◇ the paper's gain, grey: the margin)")


def test_gains_that_are_all_nothing():
    """Where a search chose no regulariser, both sides are the same nets."""
    same = [record(name, seed, {"test_accuracy": STD[seed]}) for name in ("Std", "RR") for seed in range(5)]
    some = judged(judge(CLAIMS[:1], gather(runs(same))))
    (axis,) = forest(some).axes
    low, high = axis.get_xlim()
    assert low < 0 < high
    assert some[0].verdict == UNDECIDED


def test_numbers_on_an_axis_do_not_meet():
    """They are long where gains are small."""
    claim = Claim("RR is as good", "test_ssim", "A", "RR", "Std", margin=0.01)
    some = [record(name, seed, {"test_ssim": 0.93 + 0.001 * seed}) for name in ("RR", "Std") for seed in range(5)]
    figure = forest(judged(judge((claim,), gather(runs(some)))))
    figure.draw_without_rendering()
    (axis,) = figure.axes
    low, high = axis.get_xlim()
    shown = [label for label, x in zip(axis.get_xticklabels(), axis.get_xticks(), strict=True) if low <= x <= high]
    boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_it_is_legible_on_a_telephone(findings):
    """Words above intervals, none over another."""
    figure = forest(judged(findings))
    legible(figure)
    for axis in figure.axes:
        boxes = [text.get_window_extent() for text in axis.texts]
        assert all(above.y0 > below.y1 for above, below in pairwise(boxes))


def test_the_sentence(findings):
    told = sentence(findings)
    assert told.startswith("RR beats Std: supported (+10.2 points, ")
    assert told.endswith("; of 3 claims 2 supported, 1 contradicted.")
    assert sentence(findings[:1]).endswith("; the only claim supported.")
    assert sentence(findings[3:]) == "None of 1 claim could be judged by these runs."
    assert sentence([]) == ""


def test_a_claim_in_several_settings(monkeypatch):
    """Its words stand once, above a row for every setting; the sentence is about them all. Of many each is a thin line,
    the best above, and none is read out."""
    shifts = {"one": 0.0, "two": 0.2, "three": -0.3}
    records = [
        record(name, seed, {"test_accuracy": value + shift * (name == "RR")}, config={"net": net})
        for net, shift in shifts.items()
        for name, values in (("Std", STD), ("RR", RR))
        for seed, value in enumerate(values)
    ]
    found = judged(judge(CLAIMS[:1], gather(runs(records))))
    assert sentence(found) == (
        "RR beats Std: of 3 settings supported in 2, contradicted in 1 (−19.8 to +30.2 points); "
        "of 3 claims 2 supported, 1 contradicted."
    )
    (axis,) = (figure := forest(found)).axes
    rows = [text.get_text().replace("\u00a0", " ") for text in axis.texts]
    assert rows == ["RR beats Std", "✓ net = one", "✗ net = three", "✓ net = two"]
    means = [100 * one.gain.mean for one in found]
    assert [x for x, _ in dots(axis)] == pytest.approx(means)
    assert figure.get_label().count("RR beats Std") == 3
    assert "✗" not in figure.get_label()
    monkeypatch.setattr("racecar_lab.report.forest.MANY", 2)
    (axis,) = (figure := forest(found)).axes
    assert figure.get_label() == sentence(found).partition(";")[0]
    assert [text.get_text() for text in axis.texts if text.get_text()] == ["RR beats Std"]
    assert [x for x, _ in dots(axis)] == pytest.approx(sorted(means, reverse=True))
    assert [above - below for (_, above), (_, below) in pairwise(dots(axis))] == pytest.approx([THIN, THIN])
    assert "thin: one setting each" in title(found)


def test_settings_that_tell_apart():
    """Neither what never varies, nor what the claim names, nor what follows from another field."""
    records = [
        record(name, seed, {"m": value}, config={"cost": 1.4 + norm, "norm": norm, "net": net, "lr": 1})
        for norm in (False, True)
        for net in ("one", "two")
        for name, values in (("Std", STD), ("RR", RR))
        for seed, value in enumerate(values)
    ]
    claims = [Claim("", "m", "A", "RR", "Std", where={"net": net}) for net in ("one", "two")]
    found = judge(claims, gather(runs(records)))
    assert sorted(map(label, distinct_settings(found))) == ["norm = False"] * 2 + ["norm = True"] * 2
    assert distinct_settings(found[:1]) == [()]


@pytest.mark.parametrize(
    "metric, more, expected",
    [
        ("valid_accuracy", {}, ("points", 100)),
        ("probe_2", {}, ("points", 100)),
        ("test_within", {}, ("points", 100)),
        ("test_mse", {}, ("test_mse", 1)),
        ("psnr", {}, ("dB", 1)),
        ("ssim_scaled", {}, ("SSIM", 1)),
        ("test_ssim", {}, ("test_ssim", 1)),
        ("test_l2", {}, ("L2", 1)),
        ("lpips_alexnet", {}, ("lpips_alexnet", 1)),
        ("reverse_loss", {"margin": 0.1, "relative": True}, ("%", 100)),
    ],
)
def test_units(metric, more, expected):
    assert unit(Claim("", metric, "A", "RR", "Std", **more)) == expected


def test_what_names_mean():
    groups = gather(runs([record("RR", 0, {"probe_10": 0.5, "odd": 1.0}), record("Std", 0, {}, stage="AB")]))

    class Known(Experiment):
        def stages(self, config):
            return Stage("A"), Stage("AB", "B", "A", regularised=False), Stage("B", "B")

    found = glossary(Known(), [None], groups)
    assert list(found) == ["RR", "Std", "stage A", "stage AB", "probe_10"]
    assert found["stage AB"] == "trained from A's weights on task B without regulariser"
    assert "with 10 labelled pictures" in found["probe_10"]
    assert found["RR"] == "racecar, the full reverse pass"
    Known.joins = True
    assert glossary(Known(), [None], groups)["RR"] == "racecar, the full reverse pass between joins"
    assert meanings(["odd"]) == {}
