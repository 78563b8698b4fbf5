"""Claims that two settings have the same effect: within a margin, by hand and by SciPy."""

import pytest
from scipy import stats

from racecar_lab.experiment import Claim
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.settings import label
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED, TOO_FEW, UNDECIDED
from tests.lab.report.records import record, runs

EXACT = [0.200, 0.210, 0.190, 0.205, 0.195]
NEAR = [0.201, 0.2105, 0.1912, 0.2049, 0.1962]
FAR = [0.22, 0.19, 0.205, 0.21, 0.19]


def slices(more=(), nets=("one",), **slices):
    """Runs of RR with some values of ``fraction``."""
    shares = {"whole": 1.0, "eighth": 0.125}
    return gather(runs([
        *(
            record("RR", seed, {"m": value}, config={"net": net, "fraction": shares[name], "every": 1})
            for net in nets for name, values in slices.items() for seed, value in enumerate(values)
        ),
        *more,
    ]))  # fmt: skip


def same(margin=0.03, relative=True, net="one", **more):
    where, against = {"net": net, "fraction": 0.125, "every": 1}, {"fraction": 1.0, "every": 1}
    return Claim(
        "The same", "m", "A", "RR", "RR", where=where, against=against, margin=margin, relative=relative, **more
    )


def test_the_same_effect_by_scipy():
    ratios = [one / other - 1 for one, other in zip(NEAR, EXACT, strict=True)]
    truth = stats.ttest_1samp(ratios, 0)
    (found,) = judge([same()], slices(whole=EXACT, eighth=NEAR))
    assert found.gain.mean == pytest.approx(sum(ratios) / 5)
    assert found.interval == pytest.approx(tuple(truth.confidence_interval(0.95)))
    above = stats.ttest_1samp(ratios, 0.03, alternative="less").pvalue
    below = stats.ttest_1samp(ratios, -0.03, alternative="greater").pvalue
    assert found.p == pytest.approx(2 * max(above, below))
    assert found.verdict == SUPPORTED
    assert (found.sides[0].config["fraction"], found.sides[1].config["fraction"]) == (0.125, 1.0)


def test_the_same_effect_by_hand():
    """Differences −1, 0 and 1 hundredths: mean 0, sd 0.01, and the interval is ±4.303 · 0.01/√3 = ±0.02484."""
    whole, eighth = [0.5, 0.5, 0.5], [0.49, 0.5, 0.51]
    verdicts = [judge([same(m, False)], slices(whole=whole, eighth=eighth))[0].verdict for m in (0.0249, 0.0248)]
    assert verdicts == [SUPPORTED, UNDECIDED]


def test_interval_and_margin_say_the_same_after_correction():
    claims = [same(margin) for margin in (0.005, 0.01, 0.02, 0.1, 0.12, 0.2, 0.3)]
    for found in judge(claims, slices(whole=EXACT, eighth=FAR)):
        low, high = found.interval
        inside = -found.claim.margin < low and high < found.claim.margin
        assert inside == (found.p_holm < 0.05) == (found.verdict == SUPPORTED)


def test_equal_runs_are_the_same():
    (found,) = judge([same()], slices(whole=EXACT, eighth=EXACT))
    assert (found.verdict, found.p) == (SUPPORTED, 0.0)
    (found,) = judge([same()], slices(whole=[1.0] * 3, eighth=[2.0] * 3))
    assert (found.verdict, found.p) == (CONTRADICTED, 1.0)


def test_what_diverges_on_one_side_is_not_the_same():
    config = {"net": "one", "fraction": 0.125, "every": 1}
    lost = [record("RR", 4, {}, config=config, status="diverged")]
    (found,) = judge([same()], slices(lost, whole=EXACT, eighth=NEAR[:4]))
    assert (found.verdict, found.pairs, found.diverged_alone) == (UNDECIDED, 4, {4})
    lost = [record("RR", seed, {}, config=config, status="diverged") for seed in range(5)]
    assert judge([same()], slices(lost, whole=EXACT))[0].verdict == TOO_FEW
    both = [
        *lost,
        *(record("RR", seed, {}, config={**config, "fraction": 1.0}, status="diverged") for seed in range(5)),
    ]
    assert judge([same()], slices(both))[0].verdict == TOO_FEW


def test_all_else_is_the_same_on_both_sides():
    """Two networks: each is held against itself."""
    found = judge([same(net="one"), same(net="two")], slices(nets=("one", "two"), whole=EXACT, eighth=NEAR))
    assert [label(one.setting) for one in found] == ["net = one", "net = two"]
    assert all(one.sides[0].config["net"] == one.sides[1].config["net"] for one in found)
