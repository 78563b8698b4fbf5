"""The rule of the safety map, on made-up nets with a known answer: what is chosen, and what is confirmed."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES
from racecar_lab.experiments.safety.rule import can_be_a_default, ranked
from tests.lab.experiments.made_up_nets import A, B, cell, confirmation, judged, kill, nets, plain, world

C = "reverse:anchored:layerwise"
ABLE = [loss for loss in LOSSES if can_be_a_default(loss)]
BARRED = [loss for loss in LOSSES if loss not in ABLE]


@given(seed=st.integers(0, 10**6), place=st.sampled_from(LAMBDAS[:-1]), loss=st.sampled_from(ABLE))
def test_a_planted_best_is_found(seed, place, loss):
    other = A if loss != A else B
    verdict = judged(world({(loss, place): 0.05, (other, 0.1): 0.02}, 0.02, seed))
    assert verdict.chosen == (loss, place)
    assert not verdict.confirmed
    assert verdict.order[0] == verdict.chosen
    assert len(verdict.order) == 2 * (len(LAMBDAS) - 1)
    assert cell(verdict.cells, verdict.chosen).gain == pytest.approx(0.05, abs=0.02)


@given(seed=st.integers(0, 10**6), which=st.integers(0, 44))
def test_a_killer_one_step_above_makes_it_unsafe(seed, which):
    rows = world({(A, 0.1): 0.05, (B, 0.01): 0.03}, 0.005, seed)
    kill(rows, (A, 0.3), which)
    verdict = judged(rows)
    assert verdict.chosen == (B, 0.01)
    assert not verdict.safe & {(A, 0.1), (A, 0.3), (A, 1.0)}
    assert {(A, 0.03), (B, 0.1)} <= verdict.safe
    assert (cell(verdict.cells, (A, 0.3)).killed, cell(verdict.cells, (A, 0.3)).nets) == (1, 45)
    assert (A, 0.1) in verdict.harmless


def test_the_largest_and_the_last_that_was_run_are_never_safe():
    rows = plain() + nets((A, 1.0), 0.1) + nets((B, 0.1), 0.1)
    verdict = judged(rows)
    assert len(verdict.harmless) == 2
    assert not verdict.safe
    assert verdict.chosen is None


# Scales with a unit


def test_which_losses_can_be_a_default():
    """Those whose scale has no unit, for all layers."""
    assert {loss.split(":")[1] for loss in ABLE} == {"relative", "ratio", "anchored"}
    assert {loss.split(":")[1] for loss in BARRED if "body" not in loss} == {"mean", "sum"}
    assert not any("body" in loss for loss in ABLE)


@given(seed=st.integers(0, 10**6), place=st.sampled_from(LAMBDAS[:-1]), loss=st.sampled_from(BARRED))
def test_a_scale_with_a_unit_or_a_part_of_the_layers_is_not_chosen(seed, place, loss):
    """However much it gains, and although it is safe and harmless."""
    rows = world({(loss, place): 0.05, (A, 0.1): 0.02}, 0.005, seed)
    verdict = judged(rows)
    assert (loss, place) in verdict.safe & verdict.harmless
    assert verdict.cells["gain", "mean"].idxmax() == (loss, place)
    assert ranked(verdict.cells["gain"])[0] == (loss, place)
    assert verdict.chosen == verdict.order[0] == (A, 0.1)
    assert {loss for loss, _ in verdict.order} == {A}
    assert len(verdict.order) == len(LAMBDAS) - 1


@pytest.mark.parametrize("loss", ["reverse:mean:full", "both:sum:layerwise"])
def test_a_scale_with_a_unit_is_not_even_taken_alone(loss):
    """Nor if it is confirmed, or if what could be chosen is refuted."""
    barred = world({(loss, 0.1): 0.05}) + confirmation((loss, 0.1))
    verdict = judged(barred)
    assert cell(verdict.fresh, (loss, 0.1)).nets == 540
    assert (verdict.chosen, verdict.order, verdict.confirmed) == (None, (), False)
    rows = barred + nets((A, 0.1), 0.02) + nets((A, 0.3))
    assert judged(rows).order == ((A, 0.1),)
    rows += nets((A, 0.1), seeds=[100], contexts=CONTEXTS)
    kill(rows, (A, 0.1), -1)
    assert judged(rows).chosen is None


# Ties


def spread(setting, gain, error):
    """Nets whose gain has exactly this standard error: 15 in each norm, at ± one value and 0."""
    step = error * sqrt(3) * sqrt(15) / sqrt(10 / 14)
    count = dict.fromkeys(("none", "batch", "group"), 0)
    found = []
    for row in nets(setting):
        count[row.context.norm] += 1
        found.append(row._replace(probe=0.7 + gain + step * (count[row.context.norm] % 3 - 1)))
    return found


@pytest.mark.parametrize(
    "gains, first",
    [
        ({(A, 0.3): 0.05, (A, 0.1): 0.046}, (A, 0.1)),  # the smaller λ
        ({(A, 0.3): 0.05, (A, 0.1): 0.044}, (A, 0.3)),  # not equal
        ({(A, 0.3): 0.05, (B, 0.3): 0.046, (C, 0.3): 0.0455}, (C, 0.3)),  # cheaper
        ({(A, 0.3): 0.05, (B, 0.3): 0.046}, (B, 0.3)),
        ({(A, 0.3): 0.05, (C, 0.3): 0.046, (B, 0.1): 0.046}, (B, 0.1)),  # λ before gradient
        ({(C, 0.3): 0.05, (f"{C}:body", 0.3): 0.046}, (C, 0.3)),  # larger gain
    ],
)  # fmt: skip
def test_ties(gains, first):
    rows = plain()
    for setting, gain in gains.items():
        rows += spread(setting, gain, 0.005)
    gains = judged(rows).cells["gain"]
    assert gains["error"].tolist() == pytest.approx([0.005] * len(gains))
    assert ranked(gains)[0] == first


def test_the_order_goes_on_by_the_same_rule():
    rows = plain()
    for place, gain in ((0.03, 0.03), (0.1, 0.046), (0.3, 0.05), (1.0, 0.049)):
        rows += spread((A, place), gain, 0.005)
    assert [place for _, place in ranked(judged(rows).cells["gain"])] == [0.1, 0.3, 1.0, 0.03]


# Confirmation


def test_confirmed():
    rows = world({(A, 0.1): 0.05, (B, 0.1): 0.02}) + confirmation((A, 0.1))
    verdict = judged(rows)
    assert verdict.chosen == (A, 0.1)
    assert verdict.confirmed
    assert cell(verdict.fresh, verdict.chosen).nets == 540
    assert cell(verdict.cells, verdict.chosen).nets == 45  # fresh seeds choose nothing


@pytest.mark.parametrize("seeds, contexts", [(range(100, 109), CONTEXTS), (range(100, 110), CONTEXTS[1:])])
def test_not_confirmed_yet(seeds, contexts):
    verdict = judged(world({(A, 0.1): 0.05}) + confirmation((A, 0.1), seeds, contexts))
    assert verdict.chosen == (A, 0.1)
    assert not verdict.confirmed


def test_refuted_then_the_next():
    rows = world({(A, 0.1): 0.05, (B, 0.1): 0.02}) + confirmation((A, 0.1))
    kill(rows, (A, 0.1), -1)
    assert [row.seed for row in rows if row.dead] == [109]
    verdict = judged(rows)
    assert verdict.order[0] == (A, 0.1)
    assert verdict.chosen == (B, 0.1)
    assert not verdict.confirmed
    verdict = judged(rows + [row for row in confirmation((B, 0.1)) if row.setting])
    assert (verdict.chosen, verdict.confirmed) == ((B, 0.1), True)


def test_nothing_at_all():
    verdict = judged([])
    assert (verdict.chosen, verdict.order, set(verdict.counts.values())) == (None, (), {0})
    assert judged(nets((A, 0.1))[:1]).counts["alone"] == 1
