"""All claims in one picture."""

from itertools import pairwise

import pytest

from racecar_lab.experiment import Claim, Paper
from racecar_lab.report.claim_words import claim_text
from racecar_lab.report.claims import judge
from racecar_lab.report.forest import forest
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import UNDECIDED
from tests.figures import legible
from tests.lab.report.records import record, runs
from tests.lab.report.test_claims import RR, STD

CLAIMS = [
    Claim("RR beats Std", "test_accuracy", "A", "RR", "Std"),
    Claim("Std rebuilds better than RR", "ssim", "A", "Std", "RR"),
    Claim("RR is as good as Std", "test_accuracy", "A", "RR", "Std", margin=0.3),
]


def findings(claims=CLAIMS, shifts=None, paper=(), **values):
    """The findings on claims about runs of RR and Std, in a setting for each shift of RR's accuracy."""
    records = [
        record(
            name,
            seed,
            {"test_accuracy": value + shift * (name == "RR"), "ssim": 0.1 + value},
            config={"lr": 1, "net": net},
        )
        for net, shift in (shifts or {"one": 0.0}).items()
        for name, of_variant in ({"Std": STD, "RR": RR} | values).items()
        for seed, value in enumerate(of_variant)
    ]
    return judge(claims, gather(runs(records)), paper=paper)


def dots(axis):
    """Means and the paper's gains, from above."""
    return [line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 1]


def words(axis):
    return [text.get_text().replace("\n", " ").replace("\u00a0", " ") for text in axis.texts if text.get_text()]


def test_the_picture():
    """A panel for each unit; each claim once, with its words, its mean, its interval and the paper's gain."""
    paper = [Paper("test_accuracy", "A", "RR", 0.9), Paper("test_accuracy", "A", "Std", 0.85)]
    judged = findings(paper=paper)
    points, other = forest(judged).axes
    assert (points.get_xlabel(), other.get_xlabel()) == ("gain in points", "gain in SSIM")
    assert words(points) == ["✓ RR beats Std", "✓ RR is as good as Std"]
    assert words(other) == ["✗ Std rebuilds better than RR"]
    first = judged[0]
    assert list(points.lines[0].get_xdata()) == pytest.approx([100 * end for end in first.interval])
    assert dots(points) == pytest.approx([100 * first.gain.mean, 5.0, 100 * first.gain.mean])


def test_gains_that_are_all_nothing():
    """Where a search chose no regulariser, both sides are the same nets."""
    (same,) = findings(CLAIMS[:1], RR=STD)
    (axis,) = forest([same]).axes
    low, high = axis.get_xlim()
    assert low < 0 < high
    assert same.verdict == UNDECIDED


def test_it_is_legible_on_a_telephone():
    """Words above intervals, none over another."""
    figure = forest(findings())
    legible(figure)
    for axis in figure.axes:
        boxes = [text.get_window_extent() for text in axis.texts]
        assert all(above.y0 > below.y1 for above, below in pairwise(boxes))


def test_a_claim_in_several_settings(monkeypatch):
    """Its words stand once, above a row for every setting. Of many each is a thin line, the best above, and the
    alternative text has them together."""
    several = findings(CLAIMS[:1], {"one": 0.0, "two": 0.2, "three": -0.3})
    (axis,) = (figure := forest(several)).axes
    assert words(axis) == ["RR beats Std", "✓ net = one", "✗ net = three", "✓ net = two"]
    means = [100 * finding.gain.mean for finding in several]
    assert dots(axis) == pytest.approx(means)
    assert figure.get_label().count("RR beats Std") == 3
    monkeypatch.setattr("racecar_lab.report.forest.MANY", 2)
    (axis,) = (figure := forest(several)).axes
    assert words(axis) == ["RR beats Std"]
    assert dots(axis) == pytest.approx(sorted(means, reverse=True))
    assert figure.get_label() == claim_text(several)
