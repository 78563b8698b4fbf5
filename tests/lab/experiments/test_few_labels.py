"""Few labels, in small: pictures in their publishers' layouts, every norm and task, the map by hand."""

from dataclasses import fields, replace
from statistics import mean

import numpy as np
import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.lab.config import choices
from racecar.lab.datasets import CIFAR10, MNIST, DataError, motion
from racecar.lab.experiment import Split, accuracy
from racecar.lab.experiments import experiment
from racecar.lab.experiments.few_labels import TASKS, FewLabels, FewLabelsConfig, constrained
from racecar.lab.experiments.few_labels_figures import Gain, all_figures, gains, table
from racecar.lab.measures.probe import body, choose, features, probe, settle
from racecar.lab.report.claims import judge
from racecar.lab.report.groups import gather
from racecar.lab.report.verdicts import NOT_RUN, TOO_FEW
from racecar.lab.running.jobs import make_jobs
from racecar.lab.running.results import Store
from racecar.lab.running.run import Run
from racecar.lab.running.search import trials
from racecar.lab.running.work import begin
from racecar.lab.training import augment, rng
from racecar.lab.training.loss_config import FIRST_LOSS
from racecar.lab.training.optimiser import fading
from tests.lab.experiments.pictures import write_cifar, write_mnist
from tests.lab.tiny import results, run

NORMS, LAYERS = choices(FewLabelsConfig)["norm"], choices(FewLabelsConfig)["layers"]
FEW = experiment("few-labels")
TINY = FEW.Config(images=20, epochs=1, batch=8, labels=(1, 3), draws=2, tune_draws=1, tune_steps=2, cost=1.0)
COUNTS = {"train": 100, "test": 40}


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A hundred pictures to train on and forty to test on, of either kind; the folder that they are in."""
    rng = np.random.default_rng(0)
    write_mnist(tmp_path, COUNTS, rng)
    write_cifar(tmp_path, COUNTS, rng)
    mnist, cifar = (replace(one, counts=COUNTS) for one in (MNIST, CIFAR10))
    monkeypatch.setattr(FewLabels, "sources", {"digits": mnist, "blur": mnist, "cifar": cifar})
    return tmp_path


def as_set(x):
    return {bytes((255 * one).round().byte().numpy().tobytes()) for one in x}


# Data


@pytest.mark.parametrize("task", ["digits", "cifar"])
def test_old_and_new_classes(task, pictures):
    config = replace(TINY, task=task)
    tasks = FEW.data(config, 0, pictures)
    source = FEW.sources[task]
    (x, y), (test_x, test_y) = (source.load(pictures, name) for name in ("train", "test"))
    for name, old in (("A", True), ("B", False)):
        one = tasks[name]
        assert one.train.y.unique().tolist() == one.test.y.unique().tolist() == list(range(5))
        assert one.valid is None
        assert as_set(one.train.x) <= as_set(x[(y < 5) == old].float() / 255)
        assert torch.equal(one.test.x, test_x[(test_y < 5) == old].float() / 255)
        assert torch.equal(one.test.y, test_y[(test_y < 5) == old] - (0 if old else 5))
    assert len(tasks["A"].train) == 20
    assert len(tasks["B"].train) == 50
    again, other = FEW.data(config, 0, pictures), FEW.data(config, 1, pictures)
    assert torch.equal(again["A"].train.x, tasks["A"].train.x)
    assert as_set(other["A"].train.x) != as_set(tasks["A"].train.x)


def test_what_is_held_out(pictures):
    """In a search nothing is read of the test files, and what it is judged by is in no training set."""
    for path in pictures.rglob("t10k*"):
        path.unlink()
    tasks = FEW.data(replace(TINY, valid=0.4), 0, pictures)
    held = [as_set(tasks[name].valid.x) for name in "AB"]
    assert sum(map(len, held)) == 40
    for name in "AB":
        assert tasks[name].valid is tasks[name].test
        assert not as_set(tasks[name].train.x) & (held[0] | held[1])
    with pytest.raises(DataError, match="t10k"):
        FEW.data(TINY, 0, pictures)


def test_blurred_pictures_are_new_ones(pictures, monkeypatch):
    """All ten classes on both sides, but no picture twice."""
    config = replace(TINY, task="blur")
    blurred = []
    monkeypatch.setattr(motion, "blur", lambda x: blurred.append(len(x)) or x)
    tasks = FEW.data(config, 0, pictures)
    assert blurred == [40, 80]  # the new task's alone
    assert (len(tasks["A"].train), len(tasks["B"].train)) == (20, 80)
    assert not as_set(tasks["A"].train.x) & as_set(tasks["B"].train.x)
    assert tasks["B"].test.y.unique().tolist() == list(range(10))


def test_too_few_pictures(pictures):
    with pytest.raises(ValueError, match="images=51: there are 50 to train on"):
        FEW.data(replace(TINY, images=51), 0, pictures)
    with pytest.raises(ValueError, match="11 labels per class: class 5 has 10 pictures left"):
        FEW.data(replace(TINY, labels=(2, 11)), 0, pictures)
    with pytest.raises(ValueError, match="class 0 has 0 pictures left"):
        FEW.data(replace(TINY, task="blur", images=0), 0, pictures)
    assert len(FEW.data(replace(TINY, images=0), 0, pictures)["A"].train) == 50
    assert len(FEW.data(replace(TINY, tests=7), 0, pictures)["B"].test) == 7


@pytest.mark.parametrize(
    "change, message",
    [
        ({"task": "svhn"}, "task must be one of digits, blur, cifar"),
        ({"norm": "layer"}, "norm must be one of"),
        ({"layers": "some"}, "layers must be one of"),
        ({"depth": 4}, "depth must be 3, 6, 9"),
        ({"labels": ()}, "labels must be"),
        ({"labels": (2, 2)}, "labels must be"),
        ({"images": -1}, "images must be at least 0"),
        ({"l2": 0.0}, "l2 must be greater than 0"),
        ({"draws": 0}, "draws must be greater than 0"),
        ({"cost": 0.9}, "cost must be at least 1"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        FEW.Config(**change)


# Networks


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", [3, 6])
def test_networks(norm, depth):
    """The layers that are constrained are convolutions of the net; λ is for the mean of their terms, as it was when
    their weights made it one."""
    kinds = {"none": set(), "batch": {nn.BatchNorm2d}, "group": {nn.GroupNorm}}[norm]
    for task, layers in (*(("digits", one) for one in LAYERS), ("cifar", "all")):
        config = FEW.Config(norm=norm, depth=depth, task=task, layers=layers, reduction="mean")
        model = FEW.network(config)
        convolutions = [name for name, part in model.named_modules() if isinstance(part, nn.Conv2d)]
        assert len(convolutions) == depth
        third = depth // 3
        wanted = {"all": convolutions, "early": convolutions[:third], "late": convolutions[-third:]}[layers]
        assert constrained(config) == wanted
        assert {type(p) for p in model.modules() if isinstance(p, (nn.BatchNorm2d, nn.GroupNorm))} == kinds
        assert model.classifier[-1].out_features == 5
    x = torch.rand(4, 3, 32, 32)
    rr = Racecar(model, x, mode="full", **FEW.reverse(config))
    assert [entry.name for entry in rr.plan if entry.constrained] == convolutions
    _, loss = rr(x)
    torch.testing.assert_close(loss, torch.stack(list(rr.terms.values())).mean())
    weight = {"*": 0.0, **dict.fromkeys(convolutions, 1 / depth)}
    before = Racecar(model, x, mode="full", **{**FEW.reverse(config), "weight": weight, "reduction": "sum"})
    assert torch.equal(before(x)[1], loss)


def test_first_weights_are_the_same_for_every_norm():
    found = []
    for norm in NORMS:
        torch.manual_seed(0)
        model = FEW.network(FEW.Config(norm=norm))
        found.append([part.weight for part in model.modules() if isinstance(part, nn.Conv2d)])
    for one in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(one, found[0], strict=True))


# Runs


@pytest.mark.parametrize("norm, variants", [("none", FEW.variants), ("batch", ("Std", "RR")), ("group", ("RR",))])
def test_runs(norm, variants, pictures, tmp_path):
    config = replace(TINY, norm=norm)
    jobs = make_jobs(FEW, config, variants, [0], pictures)
    assert run(jobs, tmp_path / "out") == []
    usual = {"source_accuracy", "source_nll", "source_ece", "probe_1", "probe_3", "tune_1", "tune_3"}
    found = {one["variant"]: one for one in results(tmp_path / "out").values()}
    assert set(found) == set(variants)
    for name, one in found.items():
        assert set(one["metrics"]) == usual | ({"untrained_1", "untrained_3"} if name == "Std" else set())
        assert all(0 <= value <= 1 for what, value in one["metrics"].items() if what != "source_nll")
        assert one["status"] == "finished"


def test_what_is_measured(pictures, tmp_path):
    """Probe, source and untrained net again, draw by draw; the drawn pictures are the same for all variants."""
    config = replace(TINY, norm="batch", tune_draws=0)
    (job,) = make_jobs(FEW, config, ["Std"], [3], pictures)
    assert run([job], tmp_path / "out") == []
    store, tasks = Store(tmp_path / "out"), FEW.data(config, 3, pictures)
    metrics = store.get(job.ids["A"]).metrics
    assert not any(name.startswith("tune") for name in metrics)
    fresh = begin(job, job.stages[0], tasks["A"], store, "cpu")
    trained = FEW.network(config)
    trained.load_state_dict(store.weights(job.ids["A"]))
    assert metrics["source_accuracy"] == accuracy(trained.eval(), tasks["A"].test)
    new = tasks["B"]
    for name, model in (("probe", trained), ("untrained", settle(fresh, tasks["A"].train.x))):
        seen, test = (Split(features(body(model), part.x), part.y) for part in (new.train, new.test))
        for labels in (1, 3):
            values = []
            for i in range(2):
                chosen = choose(new.train.y, labels, rng.generator("few-labels", 3, labels, i))
                values.append(probe(Split(seen.x[chosen], seen.y[chosen]), test, 5, config.l2))
            assert metrics[f"{name}_{labels}"] == pytest.approx(mean(values), abs=0.03)  # rounding of features


def test_as_many_seconds(pictures, tmp_path):
    """Std is trained once more and not shorter than RR, at the learning rate that a search chose for it. A search has
    no such training, nor have other variants."""
    assert [stage.epochs for stage in FEW.stages(FEW.Config(longer=True))] == [6]  # 5.32
    assert [stage.epochs for stage in FEW.stages(FEW.Config(longer=True, cost=1.25))] == [5]
    config = replace(TINY, epochs=2, cost=1.1)
    jobs = make_jobs(FEW, config, FEW.variants, [0], pictures, tuned={"Std": {"lr": 0.01}})
    assert [(job.variant, job.config.longer) for job in jobs if job.config.longer] == [("Std", True)]
    assert len(jobs) == 5
    for change in ({"cost": 1.0}, {"valid": 0.4}):
        assert len(make_jobs(FEW, replace(config, **change), FEW.variants, [0], pictures)) == 4
    (job,) = [job for job in jobs if job.config.longer]
    assert job.config.lr == 0.01
    assert run([job], tmp_path / "out") == []
    (found,) = results(tmp_path / "out").values()
    assert found["steps"] == 3 * 2  # epochs, and whole batches of eight
    assert set(found["metrics"]) == {
        "source_accuracy",
        "source_nll",
        "source_ece",
        "probe_1",
        "probe_3",
        "tune_1",
        "tune_3",
    }


def test_first_weights():
    """He's have a variance of 2 / fan-in and no bias; PyTorch's are as they were. The rest of the net is the same."""
    nets = {}
    for start in ("torch", "he"):
        torch.manual_seed(0)
        nets[start] = FEW.network(FewLabelsConfig(start=start, task="cifar", depth=6))
    for plain, he in zip(nets["torch"].features, nets["he"].features, strict=True):
        if isinstance(he, nn.Conv2d):
            fan = he.weight[0].numel()
            assert he.weight.detach().square().mean().item() * fan == pytest.approx(2, rel=0.15)
            assert not he.bias.any()
            assert plain.weight.detach().square().mean().item() * fan == pytest.approx(1 / 3, rel=0.15)
            assert plain.bias.any()


def test_a_search(pictures, tmp_path):
    """The same number of trials for every variant, judged by the probe on what is held out."""
    config = replace(TINY, valid=0.4, labels=(1,), draws=1)
    search = replace(FEW.search, seeds=1)
    jobs = trials(FEW, search, config, FEW.variants, pictures)
    assert {name: sum(job.variant == name for job in jobs) for name in FEW.variants} == dict.fromkeys(FEW.variants, 18)
    for path in pictures.rglob("t10k*"):
        path.unlink()
    assert run(jobs[:1], tmp_path / "out") == []
    (found,) = results(tmp_path / "out").values()
    assert set(found["metrics"]) == {"valid_accuracy"}


def test_claims():
    """About fields and metrics that there are, at the settings that the experiment has by itself."""
    names, usual = {f.name for f in fields(FEW.Config)}, FEW.Config().to_dict()
    assert len({claim.text for claim in FEW.claims}) == len(FEW.claims)
    for claim in FEW.claims:
        assert set(claim.where) <= names
        where = {name: value for name, value in claim.where.items() if name not in ("task", "norm")}
        losses = {name: where.pop(name) for name in ("scale", "gradient")}
        assert all(usual[name] == value for name, value in where.items())
        assert all({usual[name], FIRST_LOSS[name]} == values for name, values in losses.items())
        assert {"task", "norm"} <= set(claim.where)
        kind, labels = claim.metric.split("_")
        assert kind in ("probe", "tune")
        assert int(labels) in FEW.Config().labels
    assert {claim.where["task"] for claim in FEW.claims} == set(TASKS)
    against = [(claim.than, claim.margin, claim.against) for claim in FEW.claims if claim.against]
    assert against == [("Std", None, {"longer": True}), ("RR", 0.02, {"fraction": 1.0})]


def test_claims_find_both_sides(pictures, tmp_path):
    """The longer training and the exact pass stand against one claim each."""
    jobs = make_jobs(FEW, FEW.Config(), FEW.variants, range(3), pictures)
    jobs += make_jobs(FEW, FEW.Config(fraction=1.0), ["RR"], range(3), pictures)
    runs = [
        record(job.variant, job.seed, 0.5 + 0.01 * job.seed + 0.1 * (job.variant == "RR"), job.coefficient,
               longer=job.config.longer, fraction=job.config.fraction, id=id)
        for job in jobs for id in job.ids.values()
    ]  # fmt: skip
    findings = judge(FEW.claims, gather(runs), lambda config, name: None)
    assert [one.verdict for one in findings] == [
        TOO_FEW if one.pairs else NOT_RUN for one in findings
    ]  # a map: 3 seeds
    tested = {one.claim.text: (one.better.config, one.than.config) for one in findings if one.pairs}
    assert len(tested) == 7
    for text, (ours, other) in tested.items():
        assert (ours["longer"], ours["fraction"]) == (False, 1 / 8)
        assert other["longer"] is ("seconds" in text)
        assert other["fraction"] == (1.0 if "exact" in text else 1 / 8)


# A coefficient that fades, and shifts without flips


def test_a_coefficient_that_fades(pictures, tmp_path):
    """The training again, by hand; the vmap engine does the same."""
    config = replace(TINY, decay=True, epochs=2, tune_draws=0)
    (job,) = jobs = make_jobs(FEW, config, ["RR"], [0], pictures, {"RR": (5.0,)})
    plain = make_jobs(FEW, replace(config, decay=False), ["RR"], [0], pictures, {"RR": (5.0,)})
    for engine, some in (("here", [*jobs, *plain]), ("vmap", jobs)):
        assert run(some, tmp_path / engine, engine) == []
    store, task = Store(tmp_path / "here"), FEW.data(config, 0, pictures)["A"]
    model = begin(job, job.stages[0], task, store, "cpu")
    rr = Racecar(model.train(), task.train.x[:8], mode="full", **FEW.reverse(config))
    optimiser = torch.optim.Adam(model.parameters(), config.lr)
    batches = [one for epoch in range(2) for one in rng.order(20, 8, 0, "A", epoch)]
    assert len(batches) == 4
    for chosen, left in zip(batches, (1.0, 0.75, 0.5, 0.25), strict=True):
        output, regulariser = rr(task.train.x[chosen])
        optimiser.zero_grad()
        (nn.functional.cross_entropy(output, task.train.y[chosen]) + 5.0 * left * regulariser).backward()
        optimiser.step()
    wanted = dict(model.named_parameters())
    for engine in ("here", "vmap"):
        found = Store(tmp_path / engine).weights(job.ids["A"])
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-3, atol=2e-5)
    other = store.weights(plain[0].ids["A"])
    assert any((other[name] - value).abs().max() > 1e-4 for name, value in wanted.items())
    assert [fading(step, 4) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_shifts_without_flips():
    moves = augment.moves(2, (3, 50), 0, "A", 0)
    without = augment.moves(2, (3, 50), 0, "A", 0, flip=False)
    assert torch.equal(without[..., 1:], moves[..., 1:])
    assert not without[..., 0].any()
    assert moves[..., 0].any()


@pytest.mark.parametrize("task, flips, shift", [("digits", False, 2), ("cifar", True, 4)])
def test_augmented(task, flips, shift, pictures, tmp_path, monkeypatch):
    """Digits are not flipped, by either engine."""
    config = replace(TINY, task=task, augment=True, tune_draws=0)
    assert FEW.recipe(replace(config, augment=False), FEW.stages(config)[0]).shift == 0
    seen, real = [], augment.move
    monkeypatch.setattr(augment, "move", lambda x, moves, by: seen.append((moves, by)) or real(x, moves, by))
    jobs = make_jobs(FEW, config, ["Std"], [0], pictures)
    for engine in ("here", "vmap"):
        seen.clear()
        assert run(jobs, tmp_path / engine, engine) == []
        assert {by for _, by in seen} == {shift}
        assert bool(torch.cat([moves[:, 0] for moves, _ in seen]).any()) is flips


# Figures


def record(variant, seed, probe, coefficient=None, status="finished", id="x", **config):
    metrics = {"source_accuracy": 0.9, "probe_2": probe, "probe_10": probe + 0.1, "tune_2": probe - 0.1}
    if variant == "Std":
        metrics["untrained_2"] = 0.4
    base = {**FEW.Config().to_dict(), **config}
    made = {"variant": variant, "seed": seed, "coefficient": coefficient, "config": base, "stage": "A", "tuned": {}}
    made["made"] = {}
    return Run({"id": id, **made, "metrics": metrics if status == "finished" else {}, "status": status, "tables": {}})


def test_the_map_by_hand():
    runs = []
    for norm, gain in (("none", 0.1), ("batch", -0.05)):
        for depth in (3, 6):
            for seed in range(3):
                runs.append(record("Std", seed, 0.5 + 0.1 * seed, norm=norm, depth=depth))
                extra = gain + 0.01 * depth + 0.02 * (seed - 1)
                runs.append(record("RR", seed, 0.5 + 0.1 * seed + extra, 0.1, norm=norm, depth=depth))
    runs.append(record("RR", 7, 0.9, 0.1, norm="none", depth=3))  # no Std of that seed
    runs.append(record("RR", 0, 0.0, 1.0, "diverged", norm="none", depth=3))
    cells = gains(runs)
    assert len(cells) == 4
    grid = table(cells, "norm", "depth", "probe_2")
    wanted = {("none", 3): 0.13, ("none", 6): 0.16, ("batch", 3): -0.02, ("batch", 6): 0.01}
    assert {where: gain.mean for where, gain in grid.items()} == pytest.approx(wanted)
    assert [gain.sd for gain in grid.values()] == pytest.approx([0.02] * 4)
    assert table(cells, "norm", "λ", "probe_2") == {}
    cross = [("none", 3), ("none", 6), ("none", 9), ("batch", 3)]
    assert (
        table({(("norm", a), ("depth", b)): {"probe_2": Gain(0.1, 0.0)} for a, b in cross}, "norm", "depth", "probe_2")
        == {}
    )
    figures = all_figures(runs)
    texts = {title: [t.get_text() for axis in f.axes for t in axis.texts] for title, f in figures.items()}
    (title,) = [one for one in texts if "probe at 2 labels: norm and depth" in one]
    assert sorted(texts[title]) == sorted(f"{mean}\n± 2.0" for mean in ("+13.0", "+16.0", "-2.0", "+1.0"))
    (every,) = [one for one in texts if "every setting" in one]
    assert len(texts[every]) == 4 * 3


def test_settings_that_say_nothing_to_std():
    """RR with a larger slice, other layers or a coefficient that fades is held against the Std that there is, but not
    against the one that was trained longer."""
    runs = [record("Std", seed, 0.5 + 0.1 * seed) for seed in range(3)]
    runs += [record("Std", seed, 0.0, longer=True) for seed in range(3)]
    for change, gain in (({}, 0.1), ({"fraction": 1.0}, 0.2), ({"layers": "late"}, 0.3), ({"decay": True}, -0.1)):
        runs += [record("RR", seed, 0.5 + 0.1 * seed + gain, 0.1, **change) for seed in range(3)]
    runs += [record("RR", seed, 0.9, 0.1, augment=True) for seed in range(3)]  # which Std does depend on
    assert [cell["probe_2"].mean for cell in gains(runs).values()] == pytest.approx([0.1, 0.2, 0.3, -0.1])


def test_rows_say_what_tells_them_from_most():
    runs = []
    changes = ({}, {"norm": "batch"}, {"depth": 6}, {"images": 9}, {"augment": True}, {"decay": True})
    for change in changes:
        runs += [record(name, seed, 0.5, c, **change) for name, c in (("Std", None), ("RR", 0.1)) for seed in (0, 1)]
    (axis,) = all_figures(runs)["Where it helps: RR − Std in points, every setting"].axes
    found = [label.get_text() for label in axis.get_yticklabels()]
    assert sorted(found) == ["as most", "augment True", "decay True", "depth 6", "images 9", "norm batch"]
    assert axis.get_xlabel() == "most: norm none, images 4000, augment False, depth 3, decay False"


def test_lines_beside_the_usual_ones():
    """One figure for each setting, in which Std's longer training and a larger slice are lines of their own; of many
    settings, those with a pair alone are on the map only."""
    runs = []
    for norm in ("none", "batch"):
        runs += [record("Std", seed, 0.5, norm=norm) for seed in range(2)]
        runs += [record("RR", seed, 0.6, 0.1, norm=norm) for seed in range(2)]
    assert len([title for title in all_figures(runs) if title.startswith("Accuracy")]) == 2
    runs += [record(name, 0, 0.5, c, images=n) for name, c in (("Std", None), ("RR", 0.1)) for n in (1, 2, 3)]
    runs += [record("Std", seed, 0.7, longer=True) for seed in range(2)]
    runs += [record("RR", seed, 0.8, 0.1, fraction=1.0) for seed in range(2)]
    figures = all_figures(runs)
    titles = [title for title in figures if title.startswith("Accuracy")]
    assert titles == ["Accuracy on the new task over labels per class (norm = none, images = 4000)"]
    for axis in figures[titles[0]].axes:
        found = {line.get_label(): line.get_ydata()[0] for line in axis.lines if line.get_label() != "untrained"}
        less = 0.0 if "probe" in axis.get_title() else 0.1
        wanted = {"Std": 0.5, "Std longer": 0.7, "RR": 0.6, "RR fraction 1": 0.8}
        assert found == pytest.approx({name: value - less for name, value in wanted.items()})
        assert list(found) == list(wanted)


def test_accuracy_over_labels():
    runs = [record(name, seed, 0.5 + 0.1 * seed, c) for name, c in (("Std", None), ("RR", 0.1)) for seed in range(3)]
    (figure,) = all_figures(runs).values()
    probe_axis, tune_axis = figure.axes
    lines = {line.get_label(): line for line in probe_axis.lines}
    assert set(lines) == {"Std", "RR", "untrained"}
    assert lines["RR"].get_xdata().tolist() == [2, 10]
    np.testing.assert_allclose(lines["RR"].get_ydata(), [0.6, 0.7])
    low, high = (probe_axis.collections[0].get_paths()[0].vertices[:, 1].__getattribute__(f)() for f in ("min", "max"))
    assert (low, high) == (pytest.approx(0.5), pytest.approx(0.8))  # one standard deviation, 0.1, on either side
    assert {line.get_label() for line in tune_axis.lines} == {"Std", "RR"}
    assert all_figures([]) == {}
