"""The safety map's design covers what it says, and the spelling of its settings."""

from collections import Counter
from itertools import combinations, pairwise, product

import pytest

from racecar_lab.experiments.safety.design import (
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
BODY = [one for one in LOSSES if one.layers == "body"]


def test_the_losses():
    assert len(LOSSES) == len(set(LOSSES)) == 39
    every, body = LOSSES[:29], LOSSES[29:]  # new ones stand last: a loss keeps its contexts
    assert {one.layers for one in every} == {"all"}
    assert list(body) == BODY
    assert Counter(one.gradient for one in every) == {"both": 11, "reverse": 9, "weights": 9}
    assert {one.gradient for one in LOSSES if one.scale == "ratio"} == {"both"}
    assert {one.scale for one in LOSSES if one.mode == "input"} == {"relative"}
    assert len(CONTEXTS) == 54


def test_the_losses_without_classifier():
    assert Counter((one.gradient, one.scale) for one in BODY) == {
        ("both", "relative"): 2, ("reverse", "relative"): 2, ("reverse", "anchored"): 2, ("weights", "relative"): 2,
        ("weights", "anchored"): 2,
    }  # fmt: skip
    assert Counter(one.mode for one in BODY) == {"full": 5, "layerwise": 5}
    assert {one._replace(layers="all") for one in BODY} <= set(LOSSES)  # each stands beside the same with it
    assert Loss("both", "mean", "full") == Loss("both", "mean", "full", "all")


def test_the_grid():
    assert LAMBDAS == (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    assert len(COVER) == 39 * 7


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
    sizes = Counter(one.lr for loss in BODY for place in LAMBDAS for one in COVER[Setting(loss, place)])
    assert abs(sizes[LRS[0]] - sizes[LRS[1]]) < 0.1 * sizes[LRS[0]]


def test_spelling():
    for cell in CELLS:
        assert parse_setting(cell.spelling) == [cell]
        assert place_of(cell.loss.scale, cell.lam) == cell.place
        assert cell.lam == pytest.approx(cell.place / (1e4 if cell.loss.scale == "sum" else 1), rel=1e-12)


def test_spelling_of_a_loss():
    found = parse_setting("reverse:mean:full", (0.1, 1.0))
    assert found == [Setting(Loss("reverse", "mean", "full"), place) for place in (0.1, 1.0)]
    assert parse_setting("reverse:mean:full:all", (0.1, 1.0)) == found


@pytest.mark.parametrize("loss", BODY, ids=str)
def test_spelling_without_classifier(loss):
    text = f"{loss.gradient}:{loss.scale}:{loss.mode}:body"
    assert parse_setting(text) == [Setting(loss, place) for place in LAMBDAS]
    assert parse_setting(text, (0.1, 1.0)) == [Setting(loss, 0.1), Setting(loss, 1.0)]
    for place in LAMBDAS:
        one = Setting(loss, place)
        assert one.spelling == f"{text}:{place:g}"
        assert parse_setting(one.spelling, (0.1, 1.0)) == [one]  # its own λ, whatever the others
        assert parse_setting(one.spelling.replace(":body", "")) == [Setting(loss._replace(layers="all"), place)]
    assert str(loss) == f"{loss.gradient} · {loss.scale} · {loss.mode} · body"
    assert str(Setting(loss, 0.03)) == f"{loss}, λ = 0.03"


def test_other_losses_are_spelt_without_layers():
    for loss in LOSSES[:29]:
        assert "body" not in f"{loss} {Setting(loss, 0.1).spelling}"
        assert "all" not in f"{loss} {Setting(loss, 0.1).spelling}"


@pytest.mark.parametrize(
    "text",
    [
        "", "both", "both:mean", "reverse:ratio:full", "both:mean:input", "a:b:c:d:e", "body", "both:relative:body",
        "both:relative:body:0.1", "both:relative:full:head", "both:relative:full:head:0.1", "both:mean:full:body",
        "both:anchored:full:body", "both:relative:input:body", "reverse:sum:full:body:0.1",
        "both:relative:full:0.1:body", "both:relative:full:body:body", "both:relative:full:body:",
    ],
)  # fmt: skip
def test_no_such_loss(text):
    with pytest.raises(ValueError, match=r"is none of the map's.*both:relative:full"):
        parse_setting(text)


@pytest.mark.parametrize("loss", ["both:mean:full", "both:relative:full:body"])
@pytest.mark.parametrize("lam", ["0.2", "3", "10", "0.10", "0.0001"])
def test_no_such_lambda(loss, lam):
    with pytest.raises(ValueError, match=r"must be one of 0\.001, 0\.003, 0\.01, 0\.03, 0\.1, 0\.3, 1 \("):
        parse_setting(f"{loss}:{lam}")
