"""A stage against a loop written by hand, and the settings of a training."""

import math
from statistics import mean

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from racecar_lab.experiment import accuracy
from racecar_lab.running.results import Store
from racecar_lab.training import rng
from racecar_lab.training.optimiser import learning_rate
from tests.lab.tiny import Tiny, TinyConfig, make, plain, results, run
from tests.lab.training.by_hand import by_hand

SETTINGS = {
    "adam": {},
    "sgd, cosine": {"optimiser": "sgd", "schedule": "cosine", "lr": 0.1},
    "adamw, clip, one cycle": {"optimiser": "adamw", "clip": 0.3, "schedule": "onecycle", "weight_decay": 0.1},
    "every second step": {"every": 2},
    "whole batch, validation": {"batch": 0, "valid": 0.2, "epochs": 7},
}


def trained(folder, stage="A"):
    """The only result of a stage."""
    (record,) = [record for record in results(folder).values() if record["stage"] == stage]
    return record


@pytest.mark.parametrize("total", [1, 2, 3, 4, 10, 11, 333])
def test_one_cycle_is_torchs(total):
    """The schedule is OneCycleLR's with its defaults, step by step."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.7)
    cycle = OneCycleLR(optimiser, 0.7, total, cycle_momentum=False)
    for step in range(total):
        assert learning_rate(0.7, "onecycle", step, total) == pytest.approx(cycle.get_last_lr()[0], rel=1e-12)
        optimiser.step()
        if step < total - 1:
            cycle.step()
    assert math.isfinite(learning_rate(0.7, "onecycle", total + 300, total))  # CUDA graphs compute it ahead


@pytest.mark.parametrize(
    "name, setting",
    [
        *((name, "adam") for name in ("Ort", "RR1", "WD")),
        *((name, setting) for name in ("Std", "OrtB", "RR", "lRR") for setting in SETTINGS),
    ],
)
def test_a_stage_is_a_plain_loop(name, setting, tmp_path):
    config = TinyConfig(**SETTINGS[setting])
    assert run(make([name], **SETTINGS[setting]), tmp_path) == []
    model, losses, _ = by_hand(name, config)
    got = trained(tmp_path)
    assert plain(got["weights"]) == plain(model.state_dict())  # bit for bit
    means = losses.mean(1)
    torch.testing.assert_close(torch.tensor(got["curves"]["train_loss"]), means[:, 0])
    torch.testing.assert_close(torch.tensor(got["curves"]["regulariser"]), means[:, 1])
    assert got["curves"]["epoch"] == list(range(1, config.epochs + 1))
    assert (means[:, 1] > 0).all() == (name not in ("Std", "WD"))  # the regulariser was there
    if config.valid:
        assert got["curves"]["valid_accuracy"][-1] == accuracy(model, Tiny().data(config, 0, None)["A"].valid)


def test_fine_tuning_is_a_plain_loop_from_there(tmp_path):
    run(make(["RR"], finetune=2), tmp_path)
    begun = trained(tmp_path)["weights"]
    for stage, task in (("AA", "A"), ("AB", "B")):
        model, _, _ = by_hand("Std", TinyConfig(epochs=2), stage=stage, task=task, start=begun)
        assert plain(trained(tmp_path, stage)["weights"]) == plain(model.state_dict())
        assert trained(tmp_path, stage)["curves"]["regulariser"] == [0, 0]


def test_weight_decay_ends_with_its_phase(tmp_path):
    """Weight decay of the variant WD is in the first stage alone; that of the configuration is in every stage."""
    run(make(["WD"], finetune=2, weight_decay=0.05), tmp_path)
    config = TinyConfig(epochs=2, weight_decay=0.05)
    model, _, _ = by_hand("Std", config, stage="AA", start=trained(tmp_path)["weights"])
    assert plain(trained(tmp_path, "AA")["weights"]) == plain(model.state_dict())


def test_dropout_ends_with_its_phase(tmp_path):
    assert run(make(["Drop"], finetune=2), tmp_path) == []
    names = sorted(Tiny().network(TinyConfig()).state_dict())  # dropout may shift them

    def renamed(stage):
        weights = trained(tmp_path, stage)["weights"]
        return {name: weights[key] for name, key in zip(names, sorted(weights), strict=True)}

    assert plain(renamed("A")) != plain(by_hand("Std", TinyConfig())[0].state_dict())
    model, _, _ = by_hand("Std", TinyConfig(epochs=2), stage="AA", start=renamed("A"))
    assert plain(renamed("AA")) == plain(model.state_dict())


def test_pretraining_has_a_learning_rate_of_its_own(tmp_path):
    """0 stands for the learning rate of the training that follows."""
    weights = []
    for lr in (0.0, TinyConfig().lr, 3 * TinyConfig().lr):
        run(make(["Pre"], finetune=0, epochs=1, pretrain_lr=lr), tmp_path / str(lr))
        weights.append(plain(trained(tmp_path / str(lr))["weights"]))
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("name", ["Pre", "RR", "Drop"])
def test_the_seed_decides(name, tmp_path):
    for folder in ("first", "again"):
        torch.rand(7)  # the global random state is another one
        run(make([name], seeds=[0, 1], norm=name == "RR"), tmp_path / folder)
    records = results(tmp_path / "first")
    assert plain(records) == plain(results(tmp_path / "again"))
    assert len(records) == 6
    for stage in ("A", "AA", "AB"):
        first, second = [r["weights"] for r in records.values() if r["stage"] == stage]
        assert all(not torch.equal(first[key], second[key]) for key in first if key.endswith("weight"))


def test_every_epoch_has_an_order_of_its_own():
    """No sample comes twice in it, and those that do not fill a batch are left out."""
    epochs = [tuple(rng.order(26, 8, 0, "A", epoch).flatten().tolist()) for epoch in range(5)]
    assert all(len(set(epoch)) == 24 for epoch in epochs)
    assert len(set(epochs)) == 5


def test_looks_go_from_the_first_weights_to_the_last(tmp_path):
    run(make(["RR"]), tmp_path)
    got = trained(tmp_path)
    torch.manual_seed(rng.seed_of("network", "tiny", 0))
    looks = got["arrays"]["looks"]
    assert torch.equal(looks[0], Tiny().network(TinyConfig())[1].weight)
    assert torch.equal(looks[-1], got["weights"]["1.weight"])
    assert looks[1:-1].ne(looks[:1]).any()
    assert trained(tmp_path, "AA")["arrays"].keys() == {"first"}  # looks are of the regularised phase


@pytest.mark.parametrize("epochs", [100, 202])
def test_curves_are_short_and_end_with_the_training(epochs, tmp_path):
    run(make(["Std"], epochs=epochs, batch=0, finetune=0), tmp_path)
    curves = trained(tmp_path)["curves"]
    assert curves["epoch"][-1] == epochs
    assert len(curves["epoch"]) == len(curves["train_loss"]) <= 100
    every = -(-epochs // 100)
    _, losses, _ = by_hand("Std", TinyConfig(epochs=epochs, batch=0))
    parts = [part.mean() for part in losses[:, 0, 0].split(every)]
    torch.testing.assert_close(torch.tensor(curves["train_loss"]), torch.stack(parts))


def test_ema_is_what_is_measured(tmp_path):
    """It is used for final weights, metrics, accuracies on the curves, and snapshots."""
    setting = {"ema": 0.8, "valid": 0.4, "lr": 0.05}
    run(make(["RR"], **setting), tmp_path)
    got, valid = trained(tmp_path), Tiny().data(TinyConfig(**setting), 0, None)["A"].valid
    shown, plain_ = [], []
    for epochs in (1, 2, 3):
        model, _, average = by_hand("RR", TinyConfig(**setting, epochs=epochs))
        plain_.append(accuracy(model, valid))
        last = nn.utils.parameters_to_vector(model.parameters())
        with torch.no_grad():
            for mean, parameter in zip(average, model.parameters(), strict=True):
                parameter.copy_(mean)
        shown.append(accuracy(model, valid))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(got["weights"][name], parameter.detach(), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(nn.utils.parameters_to_vector(got["weights"].values()), last, rtol=1e-3)
    assert got["curves"]["valid_accuracy"] == shown != plain_
    assert torch.equal(got["arrays"]["first"], got["weights"]["1.weight"])
    assert torch.equal(got["arrays"]["looks"][-1], got["weights"]["1.weight"])
    test = Tiny().data(TinyConfig(**setting), 0, None)["A"].test
    assert got["metrics"]["test_accuracy"] == accuracy(model, test)


@pytest.mark.parametrize(
    "name, precision", [("Std", "float16"), ("Ort", "bfloat16"), ("RR", "bfloat16"), ("RR", "float16")]
)
def test_half_precision_on_the_cpu(name, precision, tmp_path):
    run(make([name]), tmp_path / "single")
    assert run(make([name], precision=precision), tmp_path / "half") == []
    half, single = trained(tmp_path / "half"), trained(tmp_path / "single")
    assert half["status"] == "finished"
    assert {w.dtype for w in half["weights"].values()} == {torch.float32}
    assert plain(half["weights"]) != plain(single["weights"])
    for key in ("train_loss", "regulariser"):
        assert half["curves"][key] == pytest.approx(single["curves"][key], rel=0.05)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["Std", "RR"])
def test_compiled(name, tmp_path, monkeypatch):
    """The step goes through the compiler without its last part, which writes C++ and takes ten seconds."""
    called, real = [], torch.compile

    def compile_(module, mode):
        assert mode is None
        called.append(module)
        return real(module, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", compile_)
    run(make([name], finetune=0), tmp_path / "eager")
    run(make([name], finetune=0), tmp_path / "compiled", compile=True)
    torch._dynamo.reset()
    assert len(called) == 1
    eager, compiled = trained(tmp_path / "eager"), trained(tmp_path / "compiled")
    assert compiled["curves"]["train_loss"] == pytest.approx(eager["curves"]["train_loss"], rel=1e-5)
    for key, weight in eager["weights"].items():
        torch.testing.assert_close(compiled["weights"][key], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # tensorboard's own
def test_tensorboard_has_a_scalar_for_every_term(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(make(["RR"], valid=0.2), tmp_path, tensorboard=True)
    (folder,) = (tmp_path / "tensorboard").glob("*-A-*")
    events = EventAccumulator(str(folder)).Reload()
    tags = set(events.Tags()["scalars"])
    assert tags == {"train_loss", "regulariser", "valid_accuracy", "terms/1", "terms/3", "terms/5"}
    for tag, values in trained(tmp_path)["curves"].items():
        if tag != "epoch":
            assert [event.value for event in events.Scalars(tag)] == pytest.approx(values)
    assert [event.step for event in events.Scalars("terms/3")] == [1, 2, 3]
    last = mean(events.Scalars(f"terms/{layer}")[2].value for layer in (1, 3, 5))  # of the last step
    assert last == pytest.approx(trained(tmp_path)["curves"]["regulariser"][-1], rel=0.5)


def test_the_record_says_how_it_was_made(tmp_path):
    run(make(["RR"], seeds=[3]), tmp_path)
    records = {run.stage: run.record for run in Store(tmp_path).runs()}
    a, aa = records["A"], records["AA"]
    assert a["parent"] is None
    assert aa["parent"] == a["id"]
    assert (a["variant"], a["weight"], a["seed"], a["regularised"]) == ("RR", 0.3, 3, True)
    assert aa["regularised"] is False
    assert a["config"]["epochs"] == 3
    assert a["cost"]["steps"] == 9
    assert 0 < a["cost"]["step_s"] * 9 <= a["cost"]["wall_s"] < 60
    assert a["made"]["engine"] == "here"
