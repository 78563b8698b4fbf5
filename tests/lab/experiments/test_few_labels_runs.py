"""Few labels, in small: every norm trained, what is measured of it again by hand, and its claims."""

from dataclasses import replace
from statistics import mean

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar_lab.experiment import Split, accuracy
from racecar_lab.experiments.few_labels import fine_tuning, measuring
from racecar_lab.experiments.few_labels.claims import FIRST, TASKS, TODAY
from racecar_lab.measures.probe import body, choose, features, probe_all, settle
from racecar_lab.measures.tune import tune
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import NOT_RUN, TOO_FEW
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin
from racecar_lab.training import augment, rng
from racecar_lab.training.loss_config import FIRST_LOSS
from racecar_lab.training.steps import vmapped
from tests.lab.experiments.few_labels_cases import FEW, TINY, record, with_pictures
from tests.lab.tiny import results, run


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    return with_pictures(tmp_path, monkeypatch)


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
                labelled = Split(seen.x[chosen][None], seen.y[chosen][None])
                values.append(float(probe_all([labelled], [test], 5, config.l2)[0]))
            assert metrics[f"{name}_{labels}"] == pytest.approx(mean(values), abs=0.03)  # rounding of features


def test_as_many_seconds(pictures, tmp_path):
    """The longer training of Std has the learning rate that a search chose for it."""
    config = replace(TINY, epochs=2, cost=1.1)
    jobs = make_jobs(FEW, config, ["Std"], [0], pictures, tuned={"Std": {"lr": 0.01}})
    (job,) = [job for job in jobs if job.config.longer]
    assert job.config.lr == 0.01
    assert run([job], tmp_path / "out") == []
    (found,) = results(tmp_path / "out").values()
    assert found["steps"] == 3 * 2  # epochs, and whole batches of eight
    measured = {"source_accuracy", "source_nll", "source_ece", "probe_1", "probe_3", "tune_1", "tune_3"}
    assert set(found["metrics"]) == measured


def test_fine_tuning_chooses_its_learning_rate(pictures, tmp_path):
    """On pictures that no draw has labelled, for each number of labels; the test set is looked at with it alone."""
    config = replace(TINY, tune_lrs=(1e-9, 1e-2), tune_steps=12, tune_draws=2)
    jobs = make_jobs(FEW, config, ["Std"], [3], pictures)
    assert run(jobs, tmp_path / "out") == []
    (found,) = results(tmp_path / "out").values()
    net, task = FEW.network(config), FEW.data(config, 3, pictures)["B"]
    net.load_state_dict(found["weights"])
    (lrs,) = found["tables"]["learning rates"]
    for labels in (1, 3):
        drawn = [choose(task.train.y, labels, rng.generator("few-labels", 3, labels, i)) for i in range(2)]
        free = [i for i in range(len(task.train)) if all(i not in some for some in drawn)]
        held, scores = Split(task.train.x[free], task.train.y[free]), {}  # fewer than are looked at: all of them
        for lr in config.tune_lrs:
            nets = []
            for i, chosen in enumerate(drawn):
                generator = rng.generator("few-labels", 3, labels, i)
                choose(task.train.y, labels, generator)
                few = Split(task.train.x[chosen][None, None], task.train.y[chosen][None, None])
                how = {"steps": 12, "batch": config.tune_batch, "lrs": [lr], "generators": [[generator]]}
                nets.append(tune([body(net)], few, 5, **how)(0, 0, 0))
            scores[lr] = [mean(accuracy(one, split) for one in nets) for split in (held, task.test)]
        best = max(scores, key=lambda lr: scores[lr][0])
        assert lrs[f"tune_{labels}"] == best
        assert found["metrics"][f"tune_{labels}"] == pytest.approx(scores[best][1], abs=0.03)


def test_gradients_lie_as_parameters_do(pictures, tmp_path, monkeypatch):
    """Orthogonality's are those of a transposed matrix. A fused optimiser refuses them, and a GPU has no other one."""
    seen, real = [], vmapped.Vmapped._update_weights

    def update(self, *args):
        real(self, *args)
        for group in self.optimiser.param_groups:
            seen.extend((one.grad.stride(), one.stride()) for one in group["params"])

    monkeypatch.setattr(vmapped.Vmapped, "_update_weights", update)
    config = replace(TINY, labels=(1,), draws=1, tune_draws=0)
    assert run(make_jobs(FEW, config, ["Ort"], [0, 1], pictures), tmp_path, "vmap") == []
    assert seen
    assert all(mine == own for mine, own in seen)


def test_claims():
    """At the settings that the experiment has by itself."""
    usual = FEW.Config().to_dict()
    for claim in FEW.claims:
        where = {name: value for name, value in claim.where.items() if name not in ("task", "norm")}
        losses = {name: where.pop(name) for name in ("scale", "gradient") if claim.design == FIRST}
        assert all(usual[name] == value for name, value in where.items())
        assert all({usual[name], FIRST_LOSS[name]} == values for name, values in losses.items())
        assert "norm" in claim.where
        assert claim.higher is (claim.metric != "source_nll")
        kind, what = claim.metric.split("_")
        assert what in ("accuracy", "nll") if kind == "source" else kind in ("probe", "tune")
        assert kind == "source" or int(what) in FEW.Config().labels
    first, today = ([claim for claim in FEW.claims if claim.design == design] for design in (FIRST, TODAY))
    assert len(first) + len(today) == len(FEW.claims)
    assert {claim.where["task"] for claim in first} == set(TASKS)
    assert not any({"task", "depth", "start", "scale"} & set(claim.where) for claim in today)
    against = [(claim.than, claim.margin, claim.against) for claim in first if claim.against]
    assert against == [("Std", None, {"longer": True}), ("RR", 0.02, {"fraction": 1.0})]
    assert {(claim.better, claim.than) for claim in today} == {
        (ours, than) for ours in ("RR", "lRR") for than in ("Std", "Ort", "OrtB", "Pre")
    }


def test_claims_find_both_sides(pictures, tmp_path):
    """The longer training and the exact pass stand against one claim each."""
    jobs = make_jobs(FEW, FEW.Config(), FEW.variants, range(3), pictures)
    jobs += make_jobs(FEW, FEW.Config(fraction=1.0), ["RR"], range(3), pictures)
    runs = [
        record(job.variant, job.seed, 0.5 + 0.01 * job.seed + 0.1 * (job.variant == "RR"), job.weight,
               longer=job.config.longer, fraction=job.config.fraction, tune_lrs=(), id=id)
        for job in jobs for id in job.ids.values()
    ]  # fmt: skip
    findings = judge(FEW.claims, gather(runs), lambda config, name: None)
    assert [one.verdict for one in findings] == [
        TOO_FEW if one.pairs else NOT_RUN for one in findings
    ]  # a map: 3 seeds
    tested = {one.claim.text: (one.sides[0].config, one.sides[1].config) for one in findings if one.pairs}
    assert len(tested) == 7
    for text, (ours, other) in tested.items():
        assert (ours["longer"], ours["fraction"]) == (False, 1 / 8)
        assert other["longer"] is ("seconds" in text)
        assert other["fraction"] == (1.0 if "exact" in text else 1 / 8)


# A weight that fades, and shifts without flips


def test_a_weight_that_fades(pictures, tmp_path, monkeypatch):
    """The training again, by hand; the vmap engine does the same, also from a recording."""
    monkeypatch.setattr(vmapped, "RECORDED", 0)
    config = replace(TINY, decay=True, epochs=2, labels=(1,), draws=1, tune_draws=0)
    (job,) = jobs = make_jobs(FEW, config, ["RR"], [0], pictures, weights={"RR": (5.0,)})
    plain = make_jobs(FEW, replace(config, decay=False), ["RR"], [0], pictures, weights={"RR": (5.0,)})
    for engine, some in (("here", [*jobs, *plain]), ("vmap", jobs)):
        assert run(some, tmp_path / engine, engine) == []
    store, task = Store(tmp_path / "here"), FEW.data(config, 0, pictures)["A"]
    model = begin(job, job.stages[0], task, store, "cpu")
    options = {**FEW.reverse(config), "fraction": config.fraction}
    rr = Racecar(model.train(), task.train.x[:8], mode="full", **options)
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


def test_shifts_without_flips():
    moves = augment.moves(2, (3, 50), 0, "A", 0)
    without = augment.moves(2, (3, 50), 0, "A", 0, flip=False)
    assert torch.equal(without[..., 1:], moves[..., 1:])
    assert not without[..., 0].any()
    assert moves[..., 0].any()


@pytest.mark.parametrize("task, flips, shift", [("digits", False, 2), ("cifar", True, 4)])
def test_augmented(task, flips, shift, pictures, tmp_path, monkeypatch):
    """Digits are not flipped, by either engine."""
    config = replace(TINY, task=task, augment=True, labels=(1,), draws=1, tune_draws=0)
    assert FEW.recipe(replace(config, augment=False), FEW.stages(config)[0]).shift == 0
    seen, real = [], augment.move
    monkeypatch.setattr(augment, "move", lambda x, moves, by: seen.append((moves, by)) or real(x, moves, by))
    jobs = make_jobs(FEW, config, ["Std"], [0], pictures)
    for engine in ("here", "vmap"):
        seen.clear()
        assert run(jobs, tmp_path / engine, engine) == []
        assert {by for _, by in seen} == {shift}
        assert bool(torch.cat([moves[:, 0] for moves, _ in seen]).any()) is flips


def test_measured_together(pictures, tmp_path, monkeypatch):
    """Each as it is alone, although all of them lend each other one model; the last ones are fewer."""
    config = replace(TINY, epochs=1, norm="batch", valid=0.4)
    jobs = make_jobs(FEW, config, ["Std"], [0, 1, 2], pictures)
    monkeypatch.setattr(
        fine_tuning, "accuracy", lambda net, split: float(net(split.x).detach()[:, 0].mean())
    )  # other for each
    found = []
    for count in (1, 2):
        monkeypatch.setattr(measuring, "AT_ONCE", {"cpu": count})
        assert run(jobs, tmp_path / str(count), "vmap") == []
        found.append({name: one["metrics"] for name, one in results(tmp_path / str(count)).items()})
    alone, together = found
    for name in next(iter(alone.values())):
        assert len({metrics[name] for metrics in alone.values()}) > 1
    assert {name: pytest.approx(metrics, rel=1e-3) for name, metrics in alone.items()} == together


def test_one_that_cannot_be_measured_is_known(pictures, tmp_path, monkeypatch):
    config, look = replace(TINY, epochs=1, tune_draws=0), measuring._prepare

    def fails(config, trained):
        if trained.seed == 1:
            raise KeyError("pictures")
        return look(config, trained)

    monkeypatch.setattr(measuring, "_prepare", fails)
    with pytest.warns(UserWarning, match="measured one by one: together it failed, KeyError"):
        (failed,) = run(make_jobs(FEW, config, ["Std"], [0, 1, 2], pictures), tmp_path, "vmap")
    assert failed.job.endswith("seed 1")
    assert {one["seed"] for one in results(tmp_path).values()} == {0, 2}
