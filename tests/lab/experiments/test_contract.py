"""The promises that every experiment keeps: its data and networks follow from the seed, no test sample is trained on or
seen by a search, every variant can be trained, measured, claimed of and drawn, and a cut run ends as an uncut one."""

import math
import re
from dataclasses import fields, replace

import pytest
import torch

from racecar import Racecar
from racecar_lab.datasets import DataError, Source
from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.report.metrics import meanings
from racecar_lab.running.results import Store
from racecar_lab.running.starting import training
from racecar_lab.training.single import Single
from tests.lab.experiments.contract_cases import CONFIGS, SEARCHED, TRAINED, WHOLE, data_of_all, jobs_of
from tests.lab.tiny import plain, results, run

SAME_DATA = {"disentangle", "mnist", "texture-shape", "slices-mnist", "slices-cifar", "streams"}
"""Experiments with a fixed split: the seed decides on weights and batches alone."""
OURS = {**dict.fromkeys(TRAINED, "RR"), "safety": "lRR", "disentangle": "RR1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with data_of_all(tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """The folder with the runs of an experiment: all variants, all stages of Std and of ours."""
    folders = {}

    def find(name):
        if name not in folders:
            jobs = jobs_of(name, folder, experiment(name).variants, **WHOLE.get(name, {}))
            some = [job if job.variant in ("Std", OURS[name]) else replace(job, stages=job.stages[:1]) for job in jobs]
            out = tmp_path_factory.mktemp(name)
            assert run(some, out) == []
            folders[name] = some, out
        return folders[name]

    return find


def samples(*splits):
    return {x.contiguous().numpy().tobytes() for split in splits if split is not None for x in split.x}


def same(some, other):
    return all(torch.equal(a, b) for a, b in zip(some, other, strict=True))


def content(tasks):
    return [
        part
        for task in tasks.values()
        for split in (task.train, task.test, task.valid)
        if split is not None
        for part in (split.x, split.y)
    ]


# Data and networks


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_data_follow_from_the_seed(name, folder):
    one, config = experiment(name), CONFIGS[name]
    first, again, other = (content(one.data(config, seed, folder)) for seed in (0, 0, 1))
    assert same(first, again)
    assert same(first, other) is (name in SAME_DATA)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "digits"])  # whose two pictures are all
def test_no_sample_is_on_two_sides(name, folder):
    for seed in (0, 1):
        for task in experiment(name).data(CONFIGS[name], seed, folder).values():
            assert task.valid is None
            assert samples(task.train)
            assert samples(task.test) or name == "streams"
            assert not samples(task.train) & samples(task.test)


@pytest.mark.parametrize("name", SEARCHED)
def test_a_search_sees_no_test_sample(name, folder):
    """What it trains on, and what it chooses by, are apart from each other and from what is tested on later."""
    one, config = experiment(name), CONFIGS[name]
    tested = samples(*(task.test for task in one.data(config, 0, folder).values()))
    tasks = one.data(replace(config, valid=0.25), 0, folder).values()
    held = samples(*(task.valid for task in tasks))
    for task in tasks:
        assert samples(task.valid)
        assert not samples(task.train) & held
        assert not samples(task.train, task.valid) & tested


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if one.sources(CONFIGS[name])])
def test_data_that_are_missing(name, tmp_path):
    with pytest.raises(DataError, match="racecar data (fetch|make)") as caught:
        experiment(name).data(CONFIGS[name], 0, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_first_weights_follow_from_the_seed(name, folder):
    one = experiment(name)
    (config, *_) = one.configs(CONFIGS[name], None)
    nets = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        nets.append(one.network(config).state_dict().values())
    first, again, other = nets
    assert same(first, again)
    assert not same(first, other)


CONVOLUTIONS = {"few-labels": 3, "long-training": 6, "mnist": 3, "shift": 3, "slices-cifar": 13, "slices-mnist": 3,
                "texture-shape": 3}  # fmt: skip


@pytest.mark.parametrize("name, count", CONVOLUTIONS.items())
def test_all_convolutions_are_constrained_and_no_classifier(name, count, folder):
    one, config = experiment(name), CONFIGS[name]
    model, x = one.network(config), one.data(config, 0, folder)["A"].train.x
    plan = Racecar(model, x, mode="full", **one.reverse(config)).plan
    convolutions = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Conv2d)]
    assert [entry.name for entry in plan if entry.constrained] == convolutions
    assert len(convolutions) == count


@pytest.mark.parametrize("name", TRAINED)
def test_the_reverse_pass_sees_the_configured_share_of_a_batch(name, folder):
    job = jobs_of(name, folder, (OURS[name],))[0]
    tried = training(replace(job, tuned={"fraction": 0.3}), job.stages[0], None, torch.nn.Identity())
    assert tried.reverse["fraction"] == 0.3


@pytest.mark.parametrize("name", [name for name in TRAINED if hasattr(CONFIGS[name], "longer")])
def test_std_alone_is_trained_as_many_seconds(name, folder):
    """Once more, its first stage for whole epochs, rounded up; but in no search, nor where RR costs nothing."""
    variants, usual = experiment(name).variants, {"epochs": 10, "cost": 1.61}
    jobs = jobs_of(name, folder, variants, **usual)
    assert len({job.ids["A"] for job in jobs}) == len(jobs)
    assert [(job.variant, job.stages[0].epochs) for job in jobs if job.config.longer] == [("Std", 17)]
    for change in ({"cost": 1.0}, {"valid": 0.25}):
        assert not any(job.config.longer for job in jobs_of(name, folder, variants, **{**usual, **change}))


REFUSED = [
    ("disentangle", {"code": "two-hot"}, "code must be one of one-hot, number"),
    ("disentangle", {"hidden": 0}, "hidden must be at least 1"),
    ("disentangle", {"channels": (8,)}, "channels must be two numbers"),
    ("disentangle", {"samples": 1}, "samples must be at least 2"),
    ("disentangle", {"images": -1}, "images must be at least 0"),
    ("disentangle", {"encoder_cost": 0.0}, "encoder_cost must be greater than 0"),
    ("disentangle", {"judge_accuracy": 1.5}, r"judge_accuracy must be in \[0, 1\]"),
    ("few-labels", {"task": "svhn"}, "task must be one of digits, blur, cifar"),
    ("few-labels", {"norm": "layer"}, "norm must be one of"),
    ("few-labels", {"layers": "some"}, "layers must be one of"),
    ("few-labels", {"depth": 4}, "depth must be 3, 6, 9"),
    ("few-labels", {"labels": ()}, "labels must be"),
    ("few-labels", {"labels": (2, 2)}, "labels must be"),
    ("few-labels", {"images": -1}, "images must be at least 0"),
    ("few-labels", {"l2": 0.0}, "l2 must be greater than 0"),
    ("few-labels", {"draws": 0}, "draws must be greater than 0"),
    ("few-labels", {"cost": 0.9}, "cost must be at least 1"),
    ("hindcast", {"system": "heat"}, "system must be one of waves, advection"),
    ("hindcast", {"viscosity": -0.1}, "viscosity must be at least 0"),
    ("hindcast", {"speed": 0.0}, "speed must be greater than 0"),
    ("hindcast", {"size": 33}, "size must be an even number of at least 16"),
    ("hindcast", {"size": 8}, "size must be an even number of at least 16"),
    ("hindcast", {"samples": 0}, "samples must be at least 1"),
    ("hindcast", {"tests": 0}, "tests must be at least 1"),
    ("hindcast", {"width": 0}, "width must be at least 1"),
    ("long-training", {"depth": 7}, "depth must be 3, 6, 9"),
    ("long-training", {"norm": "group"}, "norm must be one of none, batch"),
    ("long-training", {"widths": (4, 8)}, "widths must be three"),
    ("long-training", {"widths": (4, 8, 0)}, "widths must be three"),
    ("long-training", {"images": -1}, "images must be at least 0"),
    ("long-training", {"tests": -1}, "tests must be at least 0"),
    ("mnist", {"finetune": 0}, "finetune must be"),
    ("mnist", {"share": 0.0}, "share must be"),
    ("mnist", {"share": 1.5}, "share must be"),
    ("mnist", {"cost": 0.9}, "cost must be"),
    ("mnist", {"weight": -1.0}, "weight must be"),
    *(("safety", {name: value}, name) for name, value in (
        ("design", "x"), ("mode", "none"), ("depth", 9), ("norm", "layer"), ("weights", (0.2,)), ("weights", ()),
        ("weights", (10.0,)), ("labels", ()), ("weight", -1.0), ("images", 0), ("start", "zero"), ("lrs", (1.0,)),
        ("layers", "none"), ("layers", "classifier"),
    )),
    ("sequences", {"task": "digits"}, "task must be one of rows, add, copy"),
    ("sequences", {"cell": "mlp"}, "cell must be one of lstm, gru, rnn"),
    ("sequences", {"length": 1}, "length must be at least 2"),
    ("sequences", {"layers": 0}, "layers must be at least 1"),
    ("shift", {"task": "blur"}, "task must be one of digits, cifar"),
    ("shift", {"norm": "group"}, "norm must be one of none, batch"),
    ("shift", {"depth": 4}, "depth must be 3, 6, 9"),
    ("shift", {"noise": (0.1,)}, "noise must be two numbers above 0, mild and strong"),
    ("shift", {"contrast": (0.5, 0.0)}, "contrast must be two numbers above 0"),
    ("shift", {"tests": -1}, "tests must be at least 0"),
    ("shift", {"autoencoder_lr": 0.0}, "autoencoder_lr must be greater than 0"),
    ("smoke", {"share": 0.0}, "share must be in"),
    ("smoke", {"tests": 0}, "tests must be at least 1"),
    ("smoke", {"widths": (8, 8)}, "widths must be 5 numbers"),
    ("smoke", {"critic_widths": ()}, "critic_widths must be numbers"),
    ("smoke", {"critic_lr": 0.0}, "critic_lr must be greater than 0"),
    ("smoke", {"pixel": 0.0, "feature": 0.0, "adversarial": 0.0}, "there is nothing to learn"),
    ("smoke", {"pixel": -1.0}, "pixel must be at least 0"),
    ("texture-shape", {"fold": 5}, "fold must be 0 to 4, or none for all, not 5"),
    ("texture-shape", {"split": "odd"}, "split must be one of shape, random"),
    ("texture-shape", {"depth": 4}, "depth must be 3, 6, 9"),
    ("texture-shape", {"widths": (1, 2)}, "widths must be three numbers"),
    ("texture-shape", {"size": 4}, "size must be at least 8"),
    ("texture-shape", {"slim": 0.0}, r"slim must be in \(0, 1\]"),
    ("texture-shape", {"finetune": 0}, "finetune must be at least 1"),
    *((name, {"epochs": 0}, "epochs must be") for name in EXPERIMENTS),
]  # fmt: skip


@pytest.mark.parametrize("name, change, words", REFUSED, ids=str)
def test_settings_that_are_refused(name, change, words):
    with pytest.raises(ValueError, match=words) as caught:
        experiment(name).Config(**change)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")


# Runs


@pytest.mark.parametrize("name", TRAINED)
def test_every_variant_is_trained_and_measured(name, trained):
    """Every metric is finite and in the glossary, but for one; what is there is not trained again."""
    one, (jobs, out) = experiment(name), trained(name)
    store = Store(out)
    found = {record.id: record for record in store.runs()}
    assert {job.variant for job in jobs} == set(one.variants)
    assert {id for job in jobs for id in (job.ids[stage.name] for stage in job.stages)} <= set(found)
    for record in found.values():
        assert record.finished, record.record["note"]
        assert record.metrics
        assert all(map(math.isfinite, record.metrics.values()))
        assert record.metrics.keys() - meanings(record.metrics).keys() <= {"carried"}
    assert not any(job.unfinished(store) for job in jobs)


def kind(metric):
    """Without the number of labels, which is a setting."""
    return re.sub(r"^(probe|tune|untrained)_\d+$", r"\1", metric)


def task_of(claim):
    return {**getattr(claim, "design", {}), **claim.where}.get("task")


@pytest.mark.parametrize("name", TRAINED)
def test_claims_can_be_judged(name, trained):
    """They name metrics that are measured in their stage, variants, and settings with values that a run has."""
    one, (_, out) = experiment(name), trained(name)
    measured, known = {}, {field.name for field in fields(one.Config)}
    for record in Store(out).runs():
        measured.setdefault(record.stage, {"lpips_alexnet"}).update(map(kind, record.metrics))  # which needs weights
    task = getattr(CONFIGS[name], "task", None)
    for claim in (*one.claims, *one.reporting.paper):
        assert set(claim.where) <= known
        if task_of(claim) in (None, task):
            assert kind(claim.metric) in measured[claim.stage]
    for claim in one.claims:
        if task_of(claim) in (None, task):
            assert kind(claim.metrics[1]) in measured[claim.than_stage or claim.stage]
        assert {claim.better, claim.than} <= set(one.variants)
        assert set(claim.against) <= known
    texts = [(claim.text, str(claim.where), str(claim.design)) for claim in one.claims]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", TRAINED)
def test_figures_can_be_drawn(name, trained):
    one, (_, out) = experiment(name), trained(name)
    figures = one.reporting.figures(list(Store(out).runs()))
    assert all(figure.axes and figure.get_label() for figure in figures.values())
    assert one.reporting.figures([]) == {}


CUTS = [*((name, 2) for name in TRAINED), ("smoke", 3), ("disentangle", 3)]
"""Experiment, and the step before which its run is cut; networks of GANs take turns, each its turn a step."""


@pytest.mark.parametrize("name, step", CUTS)
def test_cut_and_resumed_bit_for_bit(name, step, folder, trained, tmp_path, monkeypatch):
    """In its second stage, if there is one: what was finished stays."""
    jobs, begun, train_step = jobs_of(name, folder, (OURS[name],)), [], Single.train_step
    light = any(stage.light for stage in jobs[0].stages)
    if light:
        assert run(jobs, tmp_path / "whole") == []
    wanted = ended(tmp_path / "whole" if light else trained(name)[1], OURS[name])
    stages = min(2, len(wanted))

    def cut(nets, *given):
        if nets not in [other for other, _ in begun]:
            begun.append((nets, []))
        begun[-1][1].append(given)
        if len(begun) == stages and len(begun[-1][1]) == step:
            raise InterruptedError
        return train_step(nets, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Single, "train_step", cut)
        assert len(run(jobs, tmp_path / "cut", interval=0.0)) == 1
    assert len(list(Store(tmp_path / "cut").runs())) == stages - 1
    assert len(list((tmp_path / "cut" / "checkpoints").iterdir())) == 1
    assert run(jobs, tmp_path / "cut") == []
    assert ended(tmp_path / "cut", OURS[name]) == wanted


def ended(out, variant):
    """The results of a variant, by id; a light stage keeps no weights."""
    runs = {run.id: run for run in Store(out).runs() if run.variant == variant}
    if all((out / "weights" / f"{id}.safetensors").exists() for id in runs):
        return {id: one for id, one in plain(results(out)).items() if id in runs}
    return {id: (run.metrics, run.record["curves"]) for id, run in runs.items()}


# Searches


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if one.search is not None])
def test_every_variant_has_the_same_budget(name):
    """As many settings, those of ours from λ = 0 on; with the paper's loss, too."""
    one = experiment(name)
    spaces = [one.search_for(one.Config())]
    if hasattr(one.Config(), "scale"):
        spaces = [one.search_for(one.Config(scale=scale)) for scale in ("relative", "sum")]
        assert (spaces[0].weights != spaces[1].weights) is bool(one.search.sum_weights)
    for space in spaces:
        base = {"lr": 1e-3, "weight": 1.0} if one.builds_on else None  # as the search before chose them
        for optimiser in space.lrs or ("adam", "sgd"):
            assert len({len(space.candidates(variant, optimiser, base)) for variant in one.variants}) == 1
        assert all(min(values) == 0 for variant, values in space.weights.items() if variant != "Pre")


@pytest.mark.parametrize("name", SEARCHED)
def test_a_search_measures_what_it_holds_out(name, folder, tmp_path, monkeypatch):
    """It has what it chooses by, nothing of the test set, and opens no test file, where there are such files."""
    one, load = experiment(name), Source.load
    if name != "mnist":  # whose labels to test on are spoiled in test_mnist.py
        monkeypatch.setattr(Source, "load", lambda self, folder, split: load(self, folder, _not_test(split)))
    space = one.search_for(CONFIGS[name])
    assert run(jobs_of(name, folder, ("Std",), valid=0.25), tmp_path) == []
    found = {run.stage: run.metrics for run in Store(tmp_path).runs()}
    assert not any(metric.startswith("test") for metrics in found.values() for metric in metrics)
    for stage in found.keys() - {"A"} if one.builds_on else space.stages:
        assert space.metric in found[stage]
        assert space.limit is None or space.limit[0] in found[stage]


def _not_test(split):
    assert split != "test"
    return split
