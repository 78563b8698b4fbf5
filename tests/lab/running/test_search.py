"""The search: the same budget for every variant, on data that no published run is measured on."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.running import search
from racecar_lab.running.results import Store
from racecar_lab.running.search import best, trained, trials
from racecar_lab.search_space import Search, half_decade
from racecar_lab.training.variants import VARIANTS
from tests.lab.report.records import record
from tests.lab.tiny import make, run

INFORMATION = experiment("information")
CONFIG = replace(INFORMATION.Config(), valid=INFORMATION.search.valid)
SMALL = Search(lrs={"adam": (1e-3, 1e-2)}, weights={"RR": (0.1, 1.0), "Ort": (1.0, 2.0)}, stages=("AA", "AB"))


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_same_budget_for_every_variant(optimiser):
    """As many settings, seeds and epochs; all different; the same span of learning rates."""
    search, config = INFORMATION.search, replace(CONFIG, optimiser=optimiser)
    names = [*INFORMATION.variants, "WD"]
    jobs = trials(INFORMATION, search, config, names, None)
    counts = Counter(job.variant for job in jobs)
    assert set(counts.values()) == {len(search.lrs[optimiser]) * 6 * search.seeds}
    for name in names:
        own = [job for job in jobs if job.variant == name]
        tried = {(job.config.lr, job.weight) for job in own}
        assert len(tried) * search.seeds == len(own)
        lrs = sorted({lr for lr, _ in tried})
        assert lrs[0] == pytest.approx(min(search.lrs[optimiser]))
        assert lrs[-1] == pytest.approx(max(search.lrs[optimiser]))
        if VARIANTS[name].meaning:
            grid = {(lr, c) for lr in search.lrs[optimiser] for c in search.weights[name]}
            assert tried == grid
        else:
            ratios = [b / a for a, b in pairwise(lrs)]  # evenly spread
            assert ratios == pytest.approx([ratios[0]] * len(ratios))
    assert {job.config.epochs for job in jobs} == {config.epochs}
    assert {job.config.valid for job in jobs} == {search.valid}
    assert {job.config.optimiser for job in jobs} == {optimiser}


def test_fields_of_one_variant_alone(tmp_path):
    """Instead of some of its weights: budgets stay the same."""
    search = replace(
        SMALL, weights={"RR": (0.1, 1.0), "Pre": (3.0,)}, own={"Pre": {"pretrain_lr": (1e-3, 1e-2)}}, seeds=1
    )
    jobs = trials(INFORMATION, search, CONFIG, ["Std", "RR", "Pre"], None)
    assert Counter(job.variant for job in jobs) == dict.fromkeys(("Std", "RR", "Pre"), 2 * 2)
    tried = {(job.config.lr, job.config.pretrain_lr) for job in jobs if job.variant == "Pre"}
    assert tried == {(lr, own) for lr in (1e-3, 1e-2) for own in (1e-3, 1e-2)}
    assert {job.config.pretrain_lr for job in jobs if job.variant != "Pre"} == {0.0}

    def score(job, name):
        return job.config.lr - job.config.pretrain_lr

    found = best(jobs, store_of(tmp_path, jobs, score), search)
    assert (found["Pre"]["lr"], found["Pre"]["pretrain_lr"], found["Pre"]["weight"]) == (1e-2, 1e-3, 3.0)
    assert "pretrain_lr" not in found["RR"]
    assert search.chosen == ("lr", "pretrain_lr")
    unlike = replace(search, weights={"RR": (0.1, 1.0), "Pre": (3.0, 4.0)})
    with pytest.raises(ValueError, match="the search gives RR 2 weights and others 4"):
        unlike.candidates("RR", "adam")


def test_more_fields_are_tried_by_every_variant():
    """Each value with everything else, so that budgets stay the same."""
    decays, search = (0.0, 0.1, 1.0), replace(SMALL, fields={"weight_decay": (0.0, 0.1, 1.0)}, seeds=1)
    jobs = trials(INFORMATION, search, CONFIG, ["Std", "RR", "Ort"], None)
    assert Counter(job.variant for job in jobs) == dict.fromkeys(("Std", "RR", "Ort"), 2 * 2 * 3)
    for name in ("Std", "RR", "Ort"):
        own = [(job.config.lr, job.config.weight_decay, job.weight) for job in jobs if job.variant == name]
        without = {(one["lr"], one.get("weight")) for one in SMALL.candidates(name, "adam")}
        assert set(own) == {(lr, decay, c) for lr, c in without for decay in decays}
        assert len(set(own)) == len(own)


def test_seeds_of_the_search_are_its_own():
    jobs = trials(INFORMATION, INFORMATION.search, CONFIG, ["RR"], None)
    seeds = {job.seed for job in jobs}
    assert len(seeds) == INFORMATION.search.seeds
    assert min(seeds) >= 1000 > INFORMATION.seeds


@pytest.mark.parametrize(
    "name, optimiser, words",
    [("Std", "adamw", "adamw"), ("Drop", "adam", "Drop"), ("RR1", "adam", "RR1"), ("odd", "adam", "no variant 'odd'")],
)
def test_what_it_cannot_search(name, optimiser, words):
    with pytest.raises(ValueError, match=words):
        SMALL.candidates(name, optimiser)


def test_budgets_that_differ_are_refused():
    with pytest.raises(ValueError, match="Ort 1 weights and others 3"):
        replace(SMALL, weights={"RR": (1.0, 2.0, 3.0), "Ort": (1.0,)}).candidates("Ort", "adam")


# Beyond the edge


def tried(settings, score):
    """A choice among settings, as ``best`` makes it."""
    rows = [{"weight": None, **setting, "score": score(setting)} for setting in settings]
    first = max(rows, key=lambda row: row["score"])
    return {**{name: value for name, value in first.items() if value is not None}, "tried": rows}


WIDE = replace(SMALL, fields={"weight_decay": (0.0, 0.1)}, most=40)


def test_a_search_goes_on_where_the_best_lies_at_an_edge():
    """By hand: the largest rate, with all else that was tried; the largest decay, with both rates and the best
    weight; nothing of the weight 0.1, the smallest, as the best one is not."""
    chosen = tried(WIDE.candidates("RR", "adam"), lambda one: one["lr"] + one["weight"] + one["weight_decay"])
    new = {(one["lr"], one["weight"], one["weight_decay"]) for one in WIDE.beyond(chosen)}
    rates = {(3e-2, c, decay) for c in (0.1, 1.0) for decay in (0.0, 0.1)}
    weights = {(lr, 3.0, 0.1) for lr in (1e-3, 1e-2)}
    decays = {(lr, 1.0, 0.3) for lr in (1e-3, 1e-2)}
    assert new == rates | weights | decays


def test_where_it_does_not_go_on():
    """Below 0, inside, above the limit of settings, and by itself."""
    settings = replace(WIDE, weights={"RR": (0.0, 1.0)}).candidates("RR", "adam")
    lowest = tried(settings, lambda one: -abs(one["lr"] - 1e-3) - one["weight"] - one["weight_decay"])
    assert {one["lr"] for one in WIDE.beyond(lowest)} == {3e-4}
    assert WIDE.beyond({**lowest, "lr": 2e-3, "tried": [*lowest["tried"], {**lowest["tried"][0], "lr": 2e-3}]}) == []
    assert replace(WIDE, most=11).beyond(lowest) == replace(WIDE, most=0).beyond(lowest) == []
    assert len(replace(WIDE, most=12).beyond(lowest)) == 4


def test_plain_training_goes_on_in_its_own_steps():
    """Ten rates in two decades: the next two fill half a decade. Of one rate nothing is known."""
    search = Search(lrs={"adam": (1e-3, 1e-1)}, weights={"RR": (1.0, 2.0, 3.0, 4.0, 5.0)}, most=12)
    chosen = tried(search.candidates("Std", "adam"), lambda one: one["lr"])
    assert len(chosen["tried"]) == 10
    assert [one["lr"] for one in search.beyond(chosen)] == pytest.approx([10 ** (-1 + i / 4.5) for i in (1, 2)])
    assert search.beyond({**chosen, "tried": chosen["tried"][-1:]}) == []


def test_half_decades():
    up = [1e-3]
    while up[-1] < 50:
        up.append(half_decade(up[-1], 1))
    assert up == [1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10, 30, 100]
    assert [half_decade(value, -1) for value in up[1:]] == up[:-1]


# What is trained once for several variants

PLAIN = ("Std", "Ort", "OrtB", "RR", "lRR", "RR1", "WD")


def test_a_weight_of_zero_is_std(tmp_path):
    """Bit for bit, in every stage: that is why one training will do for all."""
    zero = dict.fromkeys(PLAIN, (0.0,))
    jobs = make(PLAIN, seeds=(0, 1), weights=zero, fraction=0.5, finetune=1)
    assert len(jobs) == 14
    assert not run(jobs, tmp_path)
    store = Store(tmp_path)
    instead = trained(jobs)
    assert {job.variant for job in instead.values()} == {"Std"}
    for job in jobs:
        for stage, id in job.ids.items():
            ours, std = (store.weights(one) for one in (id, instead[job].ids[stage]))
            assert ours.keys() == std.keys()
            assert all(ours[name].equal(std[name]) for name in std)
            assert store.get(id).metrics == store.get(instead[job].ids[stage]).metrics


def test_what_is_trained_once(tmp_path):
    """Of two learning rates and two decays: λ = 0 of all that share them, and of Std where it has them, too. Other
    weights, Pre and dropout are trained by themselves, and budgets are what they were."""
    own = {"Ort": (0.0, 1.0), "RR": (0.0, 1.0), "Drop": (0.0, 0.5), "Pre": (0.0, 3.0)}
    search = replace(SMALL, weights=own, fields={"weight_decay": (0.0, 0.1)}, seeds=2)
    jobs = trials(INFORMATION, search, CONFIG, ["RR", "Ort", "Drop", "Pre", "Std"], None)
    instead = trained(jobs)
    assert set(instead) == set(jobs)
    for job, other in instead.items():
        assert (job.config, job.seed) == (other.config, other.seed)
        alone = job.variant in ("Drop", "Pre") or bool(job.weight)
        assert (other is job) == (alone or (job.variant == "RR" or job.config.lr not in (1e-3, 1e-2)))
    spared = len(jobs) - len(set(instead.values()))
    assert spared == 2 * 2 * 2 * 2  # Ort and Std, with two rates and two decays, two seeds each

    def score(job, stage):
        return 0.5 if job.variant == "RR" else 0.1

    found = best(jobs, store_of(tmp_path, set(instead.values()), score), search)
    assert found["Ort"]["weight"] == 0
    assert found["Ort"]["score"] == 0.5
    assert len(found["Ort"]["tried"]) == len(found["RR"]["tried"]) == 2 * 2 * 2


# What it chooses


def store_of(folder, jobs, score, lost=lambda job, stage: False):
    """Records of jobs as if they had been run; a score for each job and stage."""
    store = Store(folder)
    for job in jobs:
        for stage in job.stages:
            gone = lost(job, stage.name)
            metrics = {} if gone else {"valid_accuracy": score(job, stage.name), "error": job.config.lr}
            one = record(job.variant, job.seed, metrics, stage=stage.name, status="diverged" if gone else "finished")
            store.write({**one, "id": job.ids[stage.name]}, {}, {})
    return store


@pytest.fixture
def jobs():
    return trials(INFORMATION, SMALL, CONFIG, ["Std", "RR"], None)


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_mean_over_seeds_and_stages(higher, tmp_path, jobs):
    """RR: the best single run and the best stage A belong to others. Everything that was tried is told. Of an error,
    the least is the best."""

    def score(job, stage):
        if stage in ("A", "B"):
            return 1.0 - job.config.lr
        lucky = 0.5 if job.seed == 1001 and (job.config.lr, job.weight) == (1e-3, 0.1) else 0.0
        return 0.3 + 0.1 * (job.weight or 0) + job.config.lr + (0.02 if stage == "AB" else 0.0) + lucky

    chosen = best(jobs, store_of(tmp_path, jobs, score), replace(SMALL, higher=higher))
    assert list(chosen) == ["Std", "RR"]
    expected = {}
    for job in jobs:
        key = (job.variant, job.config.lr, job.weight)
        expected.setdefault(key, []).append(mean([score(job, "AA"), score(job, "AB")]))
    for name, found in chosen.items():
        means = {key[1:]: mean(values) for key, values in expected.items() if key[0] == name}
        lr, weight = (max if higher else min)(means, key=means.get)
        assert (found["lr"], found.get("weight")) == (lr, weight)
        assert found["score"] == pytest.approx(means[lr, weight])
        told = {(row["lr"], row["weight"]): row["score"] for row in found["tried"]}
        assert told == pytest.approx(means)
    assert "weight" not in chosen["Std"]
    if higher:
        assert (chosen["RR"]["lr"], chosen["RR"]["weight"]) == (1e-3, 0.1)


@pytest.mark.parametrize(("share", "lrs"), [(0.5, {1e-3}), (9.1, {1e-2})])
def test_no_error_above_the_limit(share, lrs, tmp_path, jobs):
    """ "error" is lr here, and a larger lr gains: it is chosen where ten times the smallest error is allowed."""
    store = store_of(tmp_path, jobs, lambda job, stage: job.config.lr / 2)
    assert {one["lr"] for one in best(jobs, store, SMALL).values()} == {1e-2}
    limited = replace(SMALL, limit=("error", share))
    found = best(jobs, store, limited)
    assert {one["lr"] for one in found.values()} == lrs
    for one in found.values():
        assert one["score"] == one["lr"] / 2
        assert {row["error"] == row["lr"] for row in one["tried"]} == {True}
        assert len(one["edge"]) == 1 + ("weight" in one)
    assert limited.judged_by == f"valid_accuracy where error is within {100 * share:g} % of the smallest"
    for nothing in (replace(SMALL, metric="nothing"), replace(limited, limit=("nothing", 1.0))):
        with pytest.raises(ValueError, match="diverged"):
            best(jobs, store, nothing)


def test_the_best_of_more_fields(tmp_path):
    """Chosen together with the rest, and told; at the end of its values it is said so."""
    search = replace(SMALL, fields={"weight_decay": (0.0, 0.1, 1.0), "momentum": (0.5, 0.8)}, seeds=1)
    jobs = trials(INFORMATION, search, CONFIG, ["Std", "RR"], None)

    def score(job, stage):
        own = job.config
        return own.lr * (own.weight_decay - 0.05) - (own.weight_decay - 0.1) ** 2 * own.momentum

    means = {}
    for job in jobs:
        key = (job.variant, job.config.lr, job.config.weight_decay, job.config.momentum, job.weight)
        means[key] = score(job, "AA")
    chosen = best(jobs, store_of(tmp_path, jobs, score), search)
    for name, found in chosen.items():
        own = {key[1:]: value for key, value in means.items() if key[0] == name}
        fields = ("lr", "weight_decay", "momentum", "weight")
        assert own[tuple(found.get(field) for field in fields)] == max(own.values()) == pytest.approx(found["score"])
        assert {tuple(row[field] for field in fields): row["score"] for row in found["tried"]} == pytest.approx(own)
        said = " ".join(found["edge"])
        assert (found["weight_decay"], "weight_decay" in said) == (0.1, False)
        assert "lr 0.01 is the largest" in said
        assert "momentum" in said


@pytest.mark.parametrize("stage", ["A", "AA", "AB"])
def test_a_setting_that_diverged_once_is_out(tmp_path, jobs, stage):
    def lost(job, name):
        bad = job.variant == "RR" and job.config.lr == 1e-2 and job.seed == 1002
        return bad and (name == stage or stage == "A")

    chosen = best(jobs, store_of(tmp_path, jobs, lambda job, name: job.config.lr, lost), SMALL)
    assert chosen["RR"]["lr"] == 1e-3
    assert chosen["Std"]["lr"] == pytest.approx(1e-2)
    scores = {(row["lr"], row["weight"]): row["score"] for row in chosen["RR"]["tried"]}
    assert scores == {(1e-3, 0.1): 1e-3, (1e-3, 1.0): 1e-3, (1e-2, 0.1): None, (1e-2, 1.0): None}


def test_a_score_that_is_no_number_is_out(tmp_path, jobs):
    """It is null in the record."""
    store = store_of(tmp_path, jobs, lambda job, name: None if job.config.lr == 1e-2 else job.config.lr)
    assert best(jobs, store, SMALL)["RR"]["lr"] == 1e-3


def test_all_diverged(tmp_path, jobs):
    store = store_of(tmp_path, jobs, lambda job, name: 1.0, lambda job, name: job.variant == "RR")
    with pytest.raises(ValueError, match="every setting of RR that was tried diverged"):
        best(jobs, store, SMALL)


@pytest.mark.parametrize("lr", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("weight", [None, 1.0, 2.0, 3.0])
def test_the_edge_of_the_grid(lr, weight):
    """Said of each number by itself, and of none that has tried ones on both sides."""
    values = [None] if weight is None else [1.0, 2.0, 3.0]
    tried = [{"lr": a, "weight": b, "score": 0.5} for a in (0.1, 0.2, 0.3) for b in values]
    found = {"lr": lr, "tried": tried} | ({} if weight is None else {"weight": weight})
    said = " ".join(search._edge(found))
    ends = {0.1: "lr 0.1 is the smallest", 0.3: "lr 0.3 is the largest", 1.0: "weight 1 is the smallest"}
    ends[3.0] = "weight 3 is the largest"
    assert {end for end in ends.values() if end in said} == {ends[one] for one in (lr, weight) if one in ends}
