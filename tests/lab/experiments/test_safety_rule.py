"""The rule of the safety map, on made-up nets with a known answer."""

import random
from dataclasses import replace
from math import sqrt
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecar.lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES, NORMS, Context, Loss, Setting, covering
from racecar.lab.experiments.safety.rule import UNITLESS, Row, judge, ranked

A = Loss("both", "relative", "layerwise")
B = Loss("weights", "anchored", "full")
C = Loss("reverse", "anchored", "layerwise")
ABLE = [one for one in LOSSES if one.scale in UNITLESS and one.layers == "all"]
BARRED = [one for one in LOSSES if one not in ABLE]
"""A scale with a unit, or not all layers."""


def plain(seeds=range(5), contexts=CONTEXTS, dead=()):
    return [
        Row(None, context, seed, context in dead, 0.1 if context in dead else 0.9, 0.7)
        for context in contexts
        for seed in seeds
    ]


def nets(setting, gain=0.0, noise=0.0, source=0.9, seeds=range(5), contexts=None, seed=0):
    rng = random.Random(f"{setting} {seed}")
    return [
        Row(setting, context, one, False, source, 0.7 + gain + noise * rng.gauss(0, 1))
        for context in contexts or covering(setting)
        for one in seeds
    ]


def world(gains, noise=0.0, seed=0):
    """Plain nets, and those of every (loss, place) with its gain; nothing for all others."""
    found = plain()
    for loss in dict.fromkeys(loss for loss, _ in gains):
        for place in LAMBDAS:
            found += nets(Setting(loss, place), gains.get((loss, place), 0.0), noise, seed=seed)
    return found


def kill(rows, setting, which=0):
    """One net of a setting dies."""
    mine = [i for i, row in enumerate(rows) if row.setting == setting]
    i = mine[which % len(mine)]
    rows[i] = replace(rows[i], dead=True, source=0.2, probe=0.2)


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


# Harm


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
@pytest.mark.parametrize("drop, harmless", [(0.0101, False), (0.01, True), (0.0, True)])
def test_harm_in_one_norm(norm, drop, harmless):
    rows = world({(A, 0.3): 0.05, (A, 0.1): 0.02})
    rows = [
        replace(row, source=0.9 - drop) if row.setting == Setting(A, 0.3) and row.context.norm == norm else row
        for row in rows
    ]
    verdict = judge(rows)
    assert (Setting(A, 0.3) in verdict.harmless) is harmless
    assert verdict.chosen == Setting(A, 0.3 if harmless else 0.1)


def test_dead_twins_say_nothing():
    """A net whose plain twin is dead was not killed, and its numbers count nowhere."""
    rows = world({(A, 0.1): 0.05})
    victim = next(iter(covering(Setting(A, 0.1))))
    rows = [replace(row, dead=True, source=0.0, probe=0.0) if row.context == victim else row for row in rows]
    verdict = judge(rows)
    assert verdict.chosen == Setting(A, 0.1)
    assert verdict.cells[verdict.chosen].nets == 40
    assert verdict.cells[verdict.chosen].killed == ()
    assert (verdict.plain_dead, verdict.plain) == (5, 270)
    assert (verdict.working, verdict.contexts) == (53, 54)


@pytest.mark.parametrize("died", [0, 3, 104])
def test_a_context_in_which_a_plain_net_died_says_nothing(died):
    """Whatever its seed, even a fresh one: none of the nets there was killed, nor does it count for harm and gain."""
    best = Setting(A, 0.1)
    victim = next(iter(covering(best)))
    rows = world({(A, 0.1): 0.05, (B, 0.1): 0.02}) + confirmation(best)
    for i, row in enumerate(rows):
        if row.context == victim and row.setting is not None:
            rows[i] = replace(row, dead=row.seed in (1, 101), source=0.5, probe=0.1)
    before = judge(rows)
    assert before.cells[best].killed == ((victim, 1),)
    assert before.fresh[best].killed == ((victim, 101),)
    assert best not in before.safe | before.harmless
    assert before.cells[best].gain < 0
    assert (before.working, before.contexts, before.plain_dead) == (54, 54, 0)

    for i, row in enumerate(rows):
        if row.context == victim and row.setting is None and row.seed == died:
            rows[i] = replace(row, dead=True, source=0.2)  # its probe would still count
    verdict, without = judge(rows), judge(row for row in rows if row.context != victim)
    assert (verdict.cells, verdict.fresh) == (without.cells, without.fresh)
    assert {one: cell.nets for one, cell in verdict.cells.items()} == {
        one: 40 if victim in covering(one) else 45 for one in verdict.cells
    }
    assert verdict.fresh[best].nets == 530
    assert not any(cell.killed for cell in (*verdict.cells.values(), *verdict.fresh.values()))
    assert verdict.cells[best].gain == pytest.approx(0.05)
    assert verdict.cells[best].source == pytest.approx(dict.fromkeys(NORMS, 0.0))
    assert (verdict.chosen, verdict.confirmed) == (best, True)  # it was run there, too
    assert (verdict.working, verdict.contexts, verdict.plain_dead, verdict.alone) == (53, 54, 1, 0)


def test_a_norm_in_which_plain_training_never_works():
    """Nothing is known to be harmless there."""
    dead = [one for one in CONTEXTS if one.norm == "none"]
    verdict = judge(plain([0], dead=dead) + [row for row in world({(A, 0.1): 0.05}) if row.setting or row.seed])
    assert (verdict.working, verdict.plain_dead) == (36, 18)
    assert verdict.cells[Setting(A, 0.1)].nets == 30
    assert Setting(A, 0.1) in verdict.safe
    assert not verdict.harmless
    assert verdict.chosen is None


def test_a_diverged_net_is_killed():
    rows = world({(A, 0.1): 0.05})
    i = next(i for i, row in enumerate(rows) if row.setting == Setting(A, 0.1))
    rows[i] = replace(rows[i], dead=True, source=None, probe=None)
    verdict = judge(rows)
    assert verdict.cells[Setting(A, 0.1)].killed == ((rows[i].context, rows[i].seed),)
    assert not verdict.safe & {Setting(A, 0.1), Setting(A, 0.03)}


def test_nets_without_twin_are_counted_and_left_out():
    rows = [row for row in world({(A, 0.1): 0.05}) if row.setting is not None or row.seed > 0]
    verdict = judge(rows)
    assert verdict.alone == 7 * 9
    assert verdict.cells[Setting(A, 0.1)].nets == 36


def test_norms_have_equal_weight():
    """Whatever number of their twins live; by hand."""
    rows = world({})
    setting, rng = Setting(A, 0.1), random.Random(0)
    mine = [replace(row, probe=0.7 + {"none": 0.06, "batch": 0.0, "group": 0.03}[row.context.norm] + rng.gauss(0, 0.01))
            for row in nets(setting)]  # fmt: skip
    dead = [one for one in covering(setting) if one.norm == "none"][:2]
    rows = plain(dead=dead) + mine
    cell = judge(rows).cells[setting]
    by_norm = [
        [row.probe - 0.7 for row in mine if row.context.norm == norm and row.context not in dead]
        for norm in ("none", "batch", "group")
    ]
    assert list(map(len, by_norm)) == [5, 15, 15]
    assert cell.gain == pytest.approx(sum(sum(some) / len(some) for some in by_norm) / 3)
    assert cell.error == pytest.approx(sqrt(sum(stdev(some) ** 2 / len(some) for some in by_norm)) / 3)


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


def confirmation(setting, seeds=range(100, 110), contexts=CONTEXTS):
    return plain(seeds, contexts) + nets(setting, seeds=seeds, contexts=contexts)


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
