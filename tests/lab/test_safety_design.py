"""The safety map's design covers what it says, and the spelling of its settings."""

from collections import Counter
from itertools import combinations, pairwise, product

import pytest

from racecar.lab.safety_design import (
    CONTEXTS,
    DEPTHS,
    LAMBDAS,
    LOSSES,
    LRS,
    NORMS,
    STARTS,
    Loss,
    Setting,
    covering,
    parse_setting,
    place_of,
)

LEVELS = (DEPTHS, STARTS, NORMS, LRS)
CELLS = [Setting(loss, place) for loss in LOSSES for place in LAMBDAS]
COVER = {cell: list(covering(cell)) for cell in CELLS}


def test_the_losses():
    assert len(LOSSES) == len(set(LOSSES)) == 29
    assert Counter(one.gradient for one in LOSSES) == {"both": 11, "reverse": 9, "weights": 9}
    assert {one.gradient for one in LOSSES if one.scale == "ratio"} == {"both"}
    assert {one.scale for one in LOSSES if one.mode == "input"} == {"relative"}
    assert len(CONTEXTS) == 54


@pytest.mark.parametrize("first, second", list(combinations(range(3), 2)))
def test_every_cell_has_every_pair_of_levels_once(first, second):
    for some in COVER.values():
        assert len(some) == 9
        pairs = [(one[first], one[second]) for one in some]
        assert sorted(pairs, key=str) == sorted(product(LEVELS[first], LEVELS[second]), key=str)


@pytest.mark.parametrize("factor", range(3))
def test_every_cell_has_both_step_sizes_with_every_level(factor):
    for some in COVER.values():
        for level in LEVELS[factor]:
            assert sorted(Counter(one.lr for one in some if one[factor] == level).values()) == [1, 2]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_meets_every_context(loss):
    """So it meets every pair and triple of levels, too; neighbours on the grid have no triple in common."""
    rows = [COVER[Setting(loss, place)] for place in LAMBDAS]
    assert {one for row in rows for one in row} == set(CONTEXTS)
    for one, other in pairwise(rows):
        assert not {c[:3] for c in one} & {c[:3] for c in other}
    sizes = Counter(one.lr for row in rows for one in row)
    assert min(sizes.values()) >= 0.4 * sizes.total()


def test_step_sizes_are_even_over_all():
    sizes = Counter((loss.scale, one.lr) for (loss, _), row in COVER.items() for one in row)
    assert abs(sizes["mean", LRS[0]] - sizes["mean", LRS[1]]) < 0.1 * sizes["mean", LRS[0]]


def test_spelling():
    for cell in CELLS:
        assert parse_setting(cell.spelling) == [cell]
        assert place_of(cell.loss.scale, cell.lam) == cell.place
        assert cell.lam == pytest.approx(cell.place / (1e4 if cell.loss.scale == "sum" else 1), rel=1e-12)


def test_spelling_of_a_loss():
    found = parse_setting("reverse:mean:full", (0.1, 1.0))
    assert found == [Setting(Loss("reverse", "mean", "full"), place) for place in (0.1, 1.0)]


@pytest.mark.parametrize("text", ["", "both", "both:mean", "reverse:ratio:full", "both:mean:input", "a:b:c:d:e"])
def test_no_such_loss(text):
    with pytest.raises(ValueError, match=r"is none of the map's.*both:relative:full"):
        parse_setting(text)


def test_no_such_lambda():
    with pytest.raises(ValueError, match=r"must be one of 0.01, 0.03"):
        parse_setting("both:mean:full:0.2")
