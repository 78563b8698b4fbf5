"""The jobs of the safety map: the whole design, some of it, a confirmation, and what cannot be."""

from collections import Counter

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety import config as safety_config
from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES, Context, Loss, Setting, covering
from racecar_lab.running.engines import vmap
from racecar_lab.running.jobs import make_jobs

SAFETY = experiment("safety")


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
    assert {(c.gradient, c.scale, c.mode, c.layers, c.lam) for c in plain} == {("none", "none", "none", "all", 0.0)}
    parts = Counter(len(part) for part in vmap._parts(whole))
    assert parts == {7: 39 * 9, 6: 9}  # seven λ, or six starts and step sizes


def test_the_nets_of_every_setting(whole):
    nets = {}
    for job in whole:
        if job.variant != "Std":
            c = job.config
            assert job.coefficient == c.lam
            nets.setdefault((c.gradient, c.scale, c.mode, c.layers, c.lam), []).append(context_of(c))
    settings = [Setting(loss, place) for loss in LOSSES for place in LAMBDAS]
    assert nets == {(*one.loss, one.lam): list(covering(one)) for one in settings}
    some = Setting(Loss("weights", "sum", "full"), 0.3)
    assert some.lam == pytest.approx(3e-5)
    assert {key[:4] for key in nets if key[-1] == some.lam} == {
        (gradient, "sum", mode, "all") for gradient in ("both", "reverse", "weights") for mode in ("full", "layerwise")
    }


def context_of(config):
    return Context(config.depth, config.start, config.norm, config.lr)


def test_a_confirmation(whole):
    losses = ("reverse:relative:layerwise:0.1", "both:sum:full:1", "weights:anchored:full:body:0.03")
    config = SAFETY.Config(design="confirm", losses=losses)
    jobs = make_jobs(SAFETY, config, SAFETY.variants, range(100, 102), None)
    assert len({job.ids["A"] for job in jobs}) == len(jobs)
    assert {len(part) for part in vmap._parts(jobs)} == {12}  # two seeds of six starts and step sizes
    assert Counter(job.variant for job in jobs) == {"Std": 108, "lRR": 108, "RR": 216}
    assert {job.coefficient for job in jobs} == {None, 0.1, 1e-4, 0.03}
    assert {(job.coefficient, job.config.layers) for job in jobs} == {
        (None, "all"), (0.1, "all"), (1e-4, "all"), (0.03, "body"),
    }  # fmt: skip
    ids = {job.ids["A"] for job in whole}
    shared = [job.seed for job in jobs if job.ids["A"] in ids]
    assert shared == [100] * (54 + 3 * 9)  # a net has the same name in either design


def test_some_of_it():
    config = SAFETY.Config(losses=("both:mean:full",), lams=(0.1, 1.0), depths=(3,), norms=("none", "batch"))
    jobs = make_jobs(SAFETY, config, SAFETY.variants, [0], None)
    assert Counter(job.variant for job in jobs)["RR"] == 2 * 2  # a start for each norm
    assert {(job.config.depth, job.config.norm) for job in jobs} == {(3, "none"), (3, "batch")}


@pytest.mark.parametrize("text, places", [("reverse:relative:layerwise:body", LAMBDAS),
                                          ("reverse:relative:layerwise:body:0.03", (0.03,))])  # fmt: skip
def test_some_of_it_without_classifier(text, places):
    found = safety_config.designed(SAFETY.Config(losses=(text,)))
    mine = [one for one in found if one.mode != "none"]
    assert {(one.gradient, one.scale, one.mode, one.layers) for one in mine} == {tuple(text.split(":")[:4])}
    assert [one.lam for one in mine] == [place for place in places for _ in range(9)]
    assert {context_of(one) for one in found if one.mode == "none"} == {context_of(one) for one in mine}


@pytest.mark.parametrize(
    "config, message",
    [
        ({"depth": 6}, "depth with design=cover: the design gives each net its own; add design=one"),
        ({"design": "one", "lams": (0.1,)}, "lams with design=one: that is for a design"),
        ({"design": "confirm"}, "design=confirm needs losses with their λ"),
        ({"design": "confirm", "losses": ("both:mean:full",)}, "design=confirm needs losses with their λ"),
        ({"design": "confirm", "losses": ("both:relative:full:body",)}, "design=confirm needs losses with their λ"),
        ({"losses": ("both:mean",)}, "is none of the map's"),
        ({"losses": ("both:anchored:full:body",)}, "is none of the map's"),
        ({"losses": ("both:relative:full:body:3",)}, "must be one of 0.001, 0.003"),
        ({"layers": "body"}, "layers with design=cover: the design gives each net its own; add design=one"),
    ],
)
def test_designs_that_cannot_be(config, message):
    with pytest.raises(ValueError, match=message):
        safety_config.designed(SAFETY.Config(**config))


@pytest.mark.parametrize(
    "config",
    [
        {"design": "x"}, {"mode": "none"}, {"depth": 9}, {"norm": "layer"}, {"lams": (0.2,)}, {"lams": ()},
        {"labels": ()}, {"lam": -1.0}, {"images": 0}, {"start": "zero"}, {"lrs": (1.0,)},
        {"lams": (10.0,)}, {"layers": "none"}, {"layers": "classifier"},
    ],
)  # fmt: skip
def test_settings_that_cannot_be(config):
    with pytest.raises(ValueError, match=next(iter(config))):
        SAFETY.Config(**config)
