"""The rule, on made-up data with known effects."""

import random
from collections import Counter

import pytest

from racecar_lab.report.statistics import Estimate, estimate
from racecar_lab.report.verdicts import CONTRADICTED, MIXED, NOT_RUN, SUPPORTED, TOO_FEW, UNDECIDED, overall, verdict


def verdicts(effect: float, rule, n: int = 10, times: int = 800) -> dict[str, float]:
    """How often each verdict is given to samples around a known effect."""
    draw = random.Random(f"{effect} {n}")
    some = (estimate([draw.gauss(effect, 1.0) for _ in range(n)]) for _ in range(times))
    counts = Counter(rule(one.n, one.interval()) for one in some)
    return {name: counts[name] / times for name in (SUPPORTED, UNDECIDED, CONTRADICTED)}


@pytest.mark.parametrize("effect", [-1.5, -0.6, 0.0, 0.6, 1.5])
def test_known_effects(effect):
    """What is there is found as often as its power says, the contrary next to never; what is not there is undecided in
    95 of 100 cases."""
    found, power = verdicts(effect, verdict), Estimate(10, 0.0, 1.0).power(effect)
    right, wrong = (SUPPORTED, CONTRADICTED) if effect >= 0 else (CONTRADICTED, SUPPORTED)
    assert found[right] == pytest.approx(power, abs=0.05)
    assert found[wrong] <= 0.04
    if effect == 0:
        assert found[UNDECIDED] == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize(
    "effect, likely", [(0.0, SUPPORTED), (1.0, UNDECIDED), (3.0, CONTRADICTED), (-3.0, CONTRADICTED)]
)
def test_known_equivalence(effect, likely):
    """Within a margin of 1, at its edge, and far outside; at the edge it is rarely called the same."""
    found = verdicts(effect, lambda n, interval: verdict(n, interval, margin=1.0), n=20)
    assert max(found, key=found.get) == likely
    assert found[likely] > 0.9
    if abs(effect) >= 1:
        assert found[SUPPORTED] <= 0.05


@pytest.mark.parametrize(
    "n, interval, minimum, expected",
    [
        (5, (0.1, 0.5), 3, SUPPORTED),
        (5, (0.0, 0.6), 3, UNDECIDED),
        (5, (-0.1, 0.7), 3, UNDECIDED),
        (5, (0.0, 0.0), 3, UNDECIDED),  # a gain of nothing supports nothing
        (5, (-0.5, 0.0), 3, UNDECIDED),
        (5, (-0.5, -0.1), 3, CONTRADICTED),
        (2, (0.1, 0.5), 3, TOO_FEW),
        (2, (0.1, 0.5), 1, TOO_FEW),
        (9, (0.1, 0.5), 10, TOO_FEW),
        (3, (0.1, 0.5), 3, SUPPORTED),
    ],
)
def test_verdict(n, interval, minimum, expected):
    assert verdict(n, interval, minimum) == expected


@pytest.mark.parametrize(
    "verdicts, expected",
    [
        ([SUPPORTED, SUPPORTED], SUPPORTED),
        ([SUPPORTED, CONTRADICTED], MIXED),
        ([SUPPORTED, UNDECIDED], MIXED),
        ([SUPPORTED, TOO_FEW], SUPPORTED),
        ([NOT_RUN, UNDECIDED], UNDECIDED),
        ([CONTRADICTED, NOT_RUN], CONTRADICTED),
        ([NOT_RUN, TOO_FEW], TOO_FEW),
        ([NOT_RUN, NOT_RUN], NOT_RUN),
    ],
)
def test_overall(verdicts, expected):
    assert overall(verdicts) == expected
