"""The safety map's design covers what it says; its jobs, and designs that cannot be."""

from collections import Counter
from itertools import combinations, pairwise, product

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety.design import (
    CONTEXTS,
    DEPTHS,
    LAMBDAS,
    LOSSES,
    LRS,
    NORMS,
    STARTS,
    Context,
    covering,
    design_configs,
    fields_of,
    settings_of,
    true_lambda,
)
from racecar_lab.running.engines.batching import groups_of
from racecar_lab.running.jobs import make_jobs

SAFETY = experiment("safety")
LEVELS = (DEPTHS, STARTS, NORMS, LRS)
COVER = {(loss, place): covering((loss, place)) for loss in LOSSES for place in LAMBDAS}
BODY = [loss for loss in LOSSES if loss.endswith(":body")]


def test_the_losses():
    assert len(LOSSES) == len(set(LOSSES)) == 39
    assert list(LOSSES[29:]) == BODY  # new ones stand last: a loss keeps its contexts
    assert Counter(loss.split(":")[0] for loss in LOSSES[:29]) == {"both": 11, "reverse": 9, "weights": 9}
    assert {loss.split(":")[0] for loss in LOSSES if ":ratio:" in loss} == {"both"}
    assert [loss for loss in LOSSES if ":input" in loss] == [
        f"{gradient}:relative:input" for gradient in ("both", "reverse", "weights")
    ]
    assert Counter(loss.split(":")[2] for loss in BODY) == {"full": 5, "layerwise": 5}
    assert {loss.removesuffix(":body") for loss in BODY} <= set(LOSSES)  # each stands beside the same with it
    assert len(CONTEXTS) == 54
    assert LAMBDAS == (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


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


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_meets_every_context(loss):
    """So it meets every pair and triple of levels, too; neighbours on the grid have no triple in common."""
    rows = [COVER[loss, place] for place in LAMBDAS]
    assert {one for row in rows for one in row} == set(CONTEXTS)
    for one, other in pairwise(rows):
        assert not {c[:3] for c in one} & {c[:3] for c in other}
    sizes = Counter(one.lr for row in rows for one in row)
    assert min(sizes.values()) >= 0.4 * sizes.total()


def test_step_sizes_are_even_over_all():
    sizes = Counter((loss.split(":")[1], one.lr) for (loss, _), row in COVER.items() for one in row)
    assert abs(sizes["mean", LRS[0]] - sizes["mean", LRS[1]]) < 0.1 * sizes["mean", LRS[0]]
    sizes = Counter(one.lr for loss in BODY for place in LAMBDAS for one in COVER[loss, place])
    assert abs(sizes[LRS[0]] - sizes[LRS[1]]) < 0.1 * sizes[LRS[0]]


def test_settings():
    assert settings_of("reverse:mean:full", (0.1, 1.0)) == [("reverse:mean:full", 0.1), ("reverse:mean:full", 1.0)]
    for loss, place in COVER:
        assert settings_of(f"{loss}:{place:g}", (0.1, 1.0)) == [(loss, place)]  # its own λ, whatever the others
        assert true_lambda((loss, place)) == pytest.approx(place / (1e4 if ":sum:" in loss else 1), rel=1e-12)
    assert fields_of(("both:relative:full:body", 0.1)) == {
        "gradient": "both", "scale": "relative", "mode": "full", "layers": "body", "weight": 0.1,
    }  # fmt: skip
    assert fields_of(("weights:sum:full", 0.3)) == {
        "gradient": "weights", "scale": "sum", "mode": "full", "layers": "all", "weight": pytest.approx(3e-5),
    }  # fmt: skip


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
        settings_of(text)


@pytest.mark.parametrize("loss", ["both:mean:full", "both:relative:full:body"])
@pytest.mark.parametrize("weight", ["0.2", "3", "10", "0.10", "0.0001"])
def test_no_such_lambda(loss, weight):
    with pytest.raises(ValueError, match=r"must be one of 0\.001, 0\.003, 0\.01, 0\.03, 0\.1, 0\.3, 1 \("):
        settings_of(f"{loss}:{weight}")


# Jobs


@pytest.fixture(scope="module")
def whole():
    """The jobs of the map, for one seed."""
    return make_jobs(SAFETY, SAFETY.Config(), SAFETY.variants, [100], None)


def test_the_whole_map(whole):
    assert SAFETY.seeds == 5
    assert len(whole) == 54 + 39 * 7 * 9
    assert len({id for job in whole for id in job.ids.values()}) == len(whole)
    assert Counter(job.variant for job in whole) == {"Std": 54, "RR": 1134, "lRR": 1134, "RR1": 189}
    plain = [job.config for job in whole if job.variant == "Std"]
    assert [context_of(c) for c in plain] == list(CONTEXTS)
    assert {(c.gradient, c.scale, c.mode, c.layers, c.weight) for c in plain} == {("none", "none", "none", "all", 0.0)}
    parts = Counter(len(part) for part in groups_of(whole))
    assert parts == {7: 39 * 9, 6: 9}  # seven λ, or six starts and step sizes


def test_the_nets_of_every_setting(whole):
    nets = {}
    for job in whole:
        if job.variant != "Std":
            c = job.config
            assert job.weight == c.weight
            nets.setdefault((c.gradient, c.scale, c.mode, c.layers, c.weight), []).append(context_of(c))
    names = ("gradient", "scale", "mode", "layers", "weight")
    assert nets == {tuple(fields_of(one)[name] for name in names): contexts for one, contexts in COVER.items()}


def context_of(config):
    return Context(config.depth, config.start, config.norm, config.lr)


def test_a_confirmation(whole):
    losses = ("reverse:relative:layerwise:0.1", "both:sum:full:1", "weights:anchored:full:body:0.03")
    config = SAFETY.Config(design="confirm", losses=losses)
    jobs = make_jobs(SAFETY, config, SAFETY.variants, range(100, 102), None)
    assert len({job.ids["A"] for job in jobs}) == len(jobs)
    assert {len(part) for part in groups_of(jobs)} == {12}  # two seeds of six starts and step sizes
    assert Counter(job.variant for job in jobs) == {"Std": 108, "lRR": 108, "RR": 216}
    assert {job.weight for job in jobs} == {None, 0.1, 1e-4, 0.03}
    assert {(job.weight, job.config.layers) for job in jobs} == {
        (None, "all"), (0.1, "all"), (1e-4, "all"), (0.03, "body"),
    }  # fmt: skip
    ids = {job.ids["A"] for job in whole}
    shared = [job.seed for job in jobs if job.ids["A"] in ids]
    assert shared == [100] * (54 + 3 * 9)  # a net has the same name in either design


def test_some_of_it():
    config = SAFETY.Config(losses=("both:mean:full",), weights=(0.1, 1.0), depths=(3,), norms=("none", "batch"))
    jobs = make_jobs(SAFETY, config, SAFETY.variants, [0], None)
    assert Counter(job.variant for job in jobs)["RR"] == 2 * 2  # a start for each norm
    assert {(job.config.depth, job.config.norm) for job in jobs} == {(3, "none"), (3, "batch")}


@pytest.mark.parametrize("text, places", [("reverse:relative:layerwise:body", LAMBDAS),
                                          ("reverse:relative:layerwise:body:0.03", (0.03,))])  # fmt: skip
def test_some_of_it_without_classifier(text, places):
    found = design_configs(SAFETY.Config(losses=(text,)))
    mine = [one for one in found if one.mode != "none"]
    assert {(one.gradient, one.scale, one.mode, one.layers) for one in mine} == {tuple(text.split(":")[:4])}
    assert [one.weight for one in mine] == [place for place in places for _ in range(9)]
    assert {context_of(one) for one in found if one.mode == "none"} == {context_of(one) for one in mine}


@pytest.mark.parametrize(
    "config, message",
    [
        ({"depth": 6}, "depth with design=cover: the design sets this field for each net; add design=one"),
        ({"design": "one", "weights": (0.1,)}, "weights with design=one: this field is for a design"),
        ({"design": "confirm"}, "design=confirm needs losses with their λ"),
        ({"design": "confirm", "losses": ("both:mean:full",)}, "design=confirm needs losses with their λ"),
        ({"design": "confirm", "losses": ("both:relative:full:body",)}, "design=confirm needs losses with their λ"),
        ({"losses": ("both:mean",)}, "is none of the map's"),
        ({"losses": ("both:anchored:full:body",)}, "is none of the map's"),
        ({"losses": ("both:relative:full:body:3",)}, "must be one of 0.001, 0.003"),
        ({"layers": "body"}, "layers with design=cover: the design sets this field for each net; add design=one"),
    ],
)
def test_designs_that_cannot_be(config, message):
    with pytest.raises(ValueError, match=message):
        design_configs(SAFETY.Config(**config))
