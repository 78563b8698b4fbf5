"""Harm and gain in the safety map, on made-up nets: which nets count, and how much."""

import random
from math import sqrt
from statistics import stdev

import pandas
import pytest

from racecar_lab.experiments.safety.design import CONTEXTS, NORMS, covering
from tests.lab.experiments.made_up_nets import A, B, cell, confirmation, judged, nets, plain, world


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
@pytest.mark.parametrize("drop, harmless", [(0.0101, False), (0.01, True), (0.0, True)])
def test_harm_in_one_norm(norm, drop, harmless):
    rows = world({(A, 0.3): 0.05, (A, 0.1): 0.02})
    rows = [
        row._replace(source=0.9 - drop) if row.setting == (A, 0.3) and row.context.norm == norm else row for row in rows
    ]
    verdict = judged(rows)
    assert ((A, 0.3) in verdict.harmless) is harmless
    assert verdict.chosen == (A, 0.3 if harmless else 0.1)


def test_dead_twins_say_nothing():
    """A net whose plain twin is dead was not killed, and its numbers count nowhere."""
    rows = world({(A, 0.1): 0.05})
    victim = next(iter(covering((A, 0.1))))
    rows = [row._replace(dead=True, source=0.0, probe=0.0) if row.context == victim else row for row in rows]
    verdict = judged(rows)
    assert verdict.chosen == (A, 0.1)
    assert cell(verdict.cells, verdict.chosen).nets == 40
    assert cell(verdict.cells, verdict.chosen).killed == 0
    assert verdict.counts == {"plain": 270, "dead": 5, "contexts": 54, "working": 53, "alone": 0}


@pytest.mark.parametrize("died", [0, 3, 104])
def test_a_context_in_which_a_plain_net_died_says_nothing(died):
    """Whatever its seed, even a fresh one: none of the nets there was killed, nor does it count for harm and gain."""
    best = (A, 0.1)
    victim = next(iter(covering(best)))
    rows = world({(A, 0.1): 0.05, (B, 0.1): 0.02}) + confirmation(best)
    for i, row in enumerate(rows):
        if row.context == victim and row.setting is not None:
            rows[i] = row._replace(dead=row.seed in (1, 101), source=0.5, probe=0.1)
    before = judged(rows)
    assert cell(before.cells, best).killed == 1
    assert cell(before.fresh, best).killed == 1
    dead = before.pairs[before.pairs.dead]
    assert set(zip(dead.depth, dead.start, dead.norm, dead.lr, dead.seed, strict=True)) == {
        (*victim, 1),
        (*victim, 101),
    }
    assert best not in before.safe | before.harmless
    assert cell(before.cells, best).gain < 0
    assert (before.counts["working"], before.counts["dead"]) == (54, 0)

    for i, row in enumerate(rows):
        if row.context == victim and row.setting is None and row.seed == died:
            rows[i] = row._replace(dead=True, source=0.2)  # its probe would still count
    verdict, without = judged(rows), judged(row for row in rows if row.context != victim)
    pandas.testing.assert_frame_equal(verdict.cells, without.cells)
    pandas.testing.assert_frame_equal(verdict.fresh, without.fresh)
    assert verdict.cells["nets", "nets"].to_dict() == {
        setting: 40 if victim in covering(setting) else 45 for setting in verdict.cells.index
    }
    assert cell(verdict.fresh, best).nets == 530
    assert verdict.cells["nets", "killed"].sum() == verdict.fresh["nets", "killed"].sum() == 0
    assert cell(verdict.cells, best).gain == pytest.approx(0.05)
    assert cell(verdict.cells, best).source == pytest.approx(dict.fromkeys(NORMS, 0.0))
    assert (verdict.chosen, verdict.confirmed) == (best, True)  # it was run there, too
    assert {**verdict.counts, "plain": 0} == {"plain": 0, "dead": 1, "contexts": 54, "working": 53, "alone": 0}


def test_a_norm_in_which_plain_training_never_works():
    """Nothing is known to be harmless there."""
    dead = [one for one in CONTEXTS if one.norm == "none"]
    verdict = judged(plain([0], dead=dead) + [row for row in world({(A, 0.1): 0.05}) if row.setting or row.seed])
    assert (verdict.counts["working"], verdict.counts["dead"]) == (36, 18)
    assert cell(verdict.cells, (A, 0.1)).nets == 30
    assert (A, 0.1) in verdict.safe
    assert not verdict.harmless
    assert verdict.chosen is None


def test_a_diverged_net_is_killed():
    rows = world({(A, 0.1): 0.05})
    i = next(i for i, row in enumerate(rows) if row.setting == (A, 0.1))
    rows[i] = rows[i]._replace(dead=True, source=None, probe=None)
    verdict = judged(rows)
    assert cell(verdict.cells, (A, 0.1)).killed == 1
    assert not verdict.safe & {(A, 0.1), (A, 0.03)}


def test_nets_without_twin_are_counted_and_left_out():
    rows = [row for row in world({(A, 0.1): 0.05}) if row.setting is not None or row.seed > 0]
    verdict = judged(rows)
    assert verdict.counts["alone"] == 7 * 9
    assert cell(verdict.cells, (A, 0.1)).nets == 36


def test_norms_have_equal_weight():
    """Whatever number of their twins live; by hand."""
    rows = world({})
    setting, rng = (A, 0.1), random.Random(0)
    mine = [row._replace(probe=0.7 + {"none": 0.06, "batch": 0.0, "group": 0.03}[row.context.norm] + rng.gauss(0, 0.01))
            for row in nets(setting)]  # fmt: skip
    dead = [one for one in covering(setting) if one.norm == "none"][:2]
    rows = plain(dead=dead) + mine
    one = cell(judged(rows).cells, setting)
    by_norm = [
        [row.probe - 0.7 for row in mine if row.context.norm == norm and row.context not in dead]
        for norm in ("none", "batch", "group")
    ]
    assert list(map(len, by_norm)) == [5, 15, 15]
    assert one.gain == pytest.approx(sum(sum(some) / len(some) for some in by_norm) / 3)
    assert one.error == pytest.approx(sqrt(sum(stdev(some) ** 2 / len(some) for some in by_norm)) / 3)
