"""The rule of the safety map, on made-up nets with a known answer: what is chosen, and what is confirmed."""

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES, Context, Loss, Setting
from racecar_lab.experiments.safety.rule import UNITLESS, Row, judge, ranked
from tests.lab.experiments.made_up_nets import A, B, confirmation, kill, nets, plain, world

C = Loss("reverse", "anchored", "layerwise")
ABLE = [one for one in LOSSES if one.scale in UNITLESS and one.layers == "all"]
BARRED = [one for one in LOSSES if one not in ABLE]
"""A scale with a unit, or not all layers."""


@given(seed=st.integers(0, 10**6), place=st.sampled_from(LAMBDAS[:-1]), loss=st.sampled_from(ABLE))
def test_a_planted_best_is_found(seed, place, loss):
    other = A if loss != A else B
    verdict = judge(world({(loss, place): 0.05, (other, 0.1): 0.02}, 0.02, seed))
    assert verdict.chosen == Setting(loss, place)
    assert not verdict.confirmed
    assert verdict.order[0] == verdict.chosen
    assert len(verdict.order) == 2 * (len(LAMBDAS) - 1)
    assert verdict.cells[verdict.chosen].gain == pytest.approx(0.05, abs=0.02)


@given(seed=st.integers(0, 10**6), which=st.integers(0, 44))
def test_a_killer_one_step_above_makes_it_unsafe(seed, which):
    rows = world({(A, 0.1): 0.05, (B, 0.01): 0.03}, 0.005, seed)
    kill(rows, Setting(A, 0.3), which)
    verdict = judge(rows)
    assert verdict.chosen == Setting(B, 0.01)
    assert not verdict.safe & {Setting(A, 0.1), Setting(A, 0.3), Setting(A, 1.0)}
    assert {Setting(A, 0.03), Setting(B, 0.1)} <= verdict.safe
    assert verdict.cells[Setting(A, 0.3)].share == 1 / 45
    assert Setting(A, 0.1) in verdict.harmless


def test_the_largest_and_the_last_that_was_run_are_never_safe():
    rows = plain() + nets(Setting(A, 1.0), 0.1) + nets(Setting(B, 0.1), 0.1)
    verdict = judge(rows)
    assert len(verdict.harmless) == 2
    assert not verdict.safe
    assert verdict.chosen is None


# Scales with a unit


def test_which_losses_can_be_a_default():
    assert {one.scale for one in ABLE} == set(UNITLESS) == {"relative", "ratio", "anchored"}
    assert {one.scale for one in BARRED if one.layers == "all"} == {"mean", "sum"}
    assert {one.layers for one in BARRED if one.scale in UNITLESS} == {"body"}


@given(seed=st.integers(0, 10**6), place=st.sampled_from(LAMBDAS[:-1]), loss=st.sampled_from(BARRED))
def test_a_scale_with_a_unit_or_a_part_of_the_layers_is_not_chosen(seed, place, loss):
    """However much it gains, and although it is safe and harmless."""
    rows = world({(loss, place): 0.05, (A, 0.1): 0.02}, 0.005, seed)
    verdict = judge(rows)
    assert Setting(loss, place) in verdict.safe & verdict.harmless
    assert max(verdict.cells, key=lambda one: verdict.cells[one].gain) == Setting(loss, place)
    assert ranked(verdict.cells)[0] == Setting(loss, place)
    assert verdict.chosen == verdict.order[0] == Setting(A, 0.1)
    assert {one.loss for one in verdict.order} == {A}
    assert len(verdict.order) == len(LAMBDAS) - 1


@pytest.mark.parametrize("loss", [Loss("reverse", "mean", "full"), Loss("both", "sum", "layerwise")], ids=str)
def test_a_scale_with_a_unit_is_not_even_taken_alone(loss):
    """Nor if it is confirmed, or if what could be chosen is refuted."""
    barred = world({(loss, 0.1): 0.05}) + confirmation(Setting(loss, 0.1))
    verdict = judge(barred)
    assert verdict.fresh[Setting(loss, 0.1)].nets == 540
    assert (verdict.chosen, verdict.order, verdict.confirmed) == (None, (), False)
    rows = barred + nets(Setting(A, 0.1), 0.02) + nets(Setting(A, 0.3))
    assert judge(rows).order == (Setting(A, 0.1),)
    rows += nets(Setting(A, 0.1), seeds=[100], contexts=CONTEXTS)
    kill(rows, Setting(A, 0.1), -1)
    assert judge(rows).chosen is None


# Ties


def spread(setting, gain, error):
    """Nets whose gain has exactly this standard error: 15 in each norm, at ± one value and 0."""
    step = error * sqrt(3) * sqrt(15) / sqrt(10 / 14)
    count = dict.fromkeys(("none", "batch", "group"), 0)
    found = []
    for row in nets(setting):
        count[row.context.norm] += 1
        found.append(replace(row, probe=0.7 + gain + step * (count[row.context.norm] % 3 - 1)))
    return found


@pytest.mark.parametrize(
    "gains, first",
    [
        ({Setting(A, 0.3): 0.05, Setting(A, 0.1): 0.046}, Setting(A, 0.1)),  # the smaller λ
        ({Setting(A, 0.3): 0.05, Setting(A, 0.1): 0.044}, Setting(A, 0.3)),  # not equal
        ({Setting(A, 0.3): 0.05, Setting(B, 0.3): 0.046, Setting(C, 0.3): 0.0455}, Setting(C, 0.3)),  # cheaper
        ({Setting(A, 0.3): 0.05, Setting(B, 0.3): 0.046}, Setting(B, 0.3)),
        ({Setting(A, 0.3): 0.05, Setting(C, 0.3): 0.046, Setting(B, 0.1): 0.046}, Setting(B, 0.1)),  # λ before gradient
        ({Setting(C, 0.3): 0.05, Setting(C._replace(layers="body"), 0.3): 0.046}, Setting(C, 0.3)),  # larger gain
    ],
)  # fmt: skip
def test_ties(gains, first):
    rows = plain()
    for setting, gain in gains.items():
        rows += spread(setting, gain, 0.005)
    cells = judge(rows).cells
    assert all(cell.error == pytest.approx(0.005) for cell in cells.values())
    assert ranked(cells)[0] == first


def test_the_order_goes_on_by_the_same_rule():
    rows = plain()
    for place, gain in ((0.03, 0.03), (0.1, 0.046), (0.3, 0.05), (1.0, 0.049)):
        rows += spread(Setting(A, place), gain, 0.005)
    assert [one.place for one in ranked(judge(rows).cells)] == [0.1, 0.3, 1.0, 0.03]


# Confirmation


def test_confirmed():
    rows = world({(A, 0.1): 0.05, (B, 0.1): 0.02}) + confirmation(Setting(A, 0.1))
    verdict = judge(rows)
    assert verdict.chosen == Setting(A, 0.1)
    assert verdict.confirmed
    assert verdict.fresh[verdict.chosen].nets == 540
    assert verdict.cells[verdict.chosen].nets == 45  # fresh seeds choose nothing


@pytest.mark.parametrize("seeds, contexts", [(range(100, 109), CONTEXTS), (range(100, 110), CONTEXTS[1:])])
def test_not_confirmed_yet(seeds, contexts):
    verdict = judge(world({(A, 0.1): 0.05}) + confirmation(Setting(A, 0.1), seeds, contexts))
    assert verdict.chosen == Setting(A, 0.1)
    assert not verdict.confirmed


def test_refuted_then_the_next():
    rows = world({(A, 0.1): 0.05, (B, 0.1): 0.02}) + confirmation(Setting(A, 0.1))
    kill(rows, Setting(A, 0.1), -1)
    assert [row.seed for row in rows if row.dead] == [109]
    verdict = judge(rows)
    assert verdict.order[0] == Setting(A, 0.1)
    assert verdict.chosen == Setting(B, 0.1)
    assert not verdict.confirmed
    verdict = judge(rows + [row for row in confirmation(Setting(B, 0.1)) if row.setting])
    assert (verdict.chosen, verdict.confirmed) == (Setting(B, 0.1), True)


def test_nothing_at_all():
    verdict = judge([])
    assert (verdict.chosen, verdict.order, verdict.plain) == (None, (), 0)
    assert (verdict.working, verdict.contexts) == (0, 0)
    assert judge([Row(Setting(A, 0.1), Context(3, "he", "none", 1e-3), 0, False)]).alone == 1
