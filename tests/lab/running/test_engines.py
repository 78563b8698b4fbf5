"""The same run on every engine: the same results, also of a training that diverges."""

from dataclasses import dataclass, replace

import pytest
import torch

from racecar import pretrain
from racecar_lab.running import runner
from racecar_lab.running.engines import batching
from racecar_lab.running.engines.batching import groups_of
from racecar_lab.training.steps import vmapped
from tests.lab.tiny import Tiny, TinyConfig, make, results, run

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""What "the same within float tolerance" means here: float32, some fifteen steps."""
SETTING = {"valid": 0.2, "clip": 0.5, "schedule": "onecycle"}


def jobs():
    """All variants of the vmap engine and two seeds; all three stages, with several weights and step sizes."""
    alone = make(["Std", "Ort", "Pre", "lRR", "RR1"], [0, 1], finetune=0, **SETTING)
    decays = [
        job
        for decay in (0.0, 0.05)
        for job in make(["WD"], [0, 1], weights={"WD": (0.01, 0.1)}, finetune=0, weight_decay=decay, **SETTING)
    ]
    stages = [make(["RR"], [0, 1], weights={"RR": (0.1, 0.5)}, lr=lr, **SETTING) for lr in (1e-2, 3e-3)]
    return [*alone, *decays, *stages[0], *stages[1]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """One after the other, in this process."""
    folder = tmp_path_factory.mktemp("here")
    assert run(jobs(), folder) == []
    return results(folder)


def assert_same(found, wanted):
    """Everything but costs and makers: equal, or close if it is a number that was computed."""
    assert found.keys() == wanted.keys()
    for id, one in wanted.items():
        got = found[id]
        for part in ("metrics", "curves", "tables", "weights", "arrays"):
            assert got[part].keys() == one[part].keys()
            for name, value in one[part].items():
                a, b = torch.as_tensor(got[part][name]), torch.as_tensor(value)
                torch.testing.assert_close(a, b, **CLOSE, msg=f"{one['variant']}, {one['stage']}: {name} differs")
        rest = one.keys() - {"metrics", "curves", "tables", "weights", "arrays"}
        assert {name: got[name] for name in rest} == {name: one[name] for name in rest}


@pytest.fixture
def recorded(monkeypatch):
    """Steps of vmap are recorded, although they are few."""
    monkeypatch.setattr(vmapped, "RECORDED", 0)


@pytest.mark.usefixtures("recorded")
def test_vmap_is_the_same(reference, tmp_path):
    assert run(jobs(), tmp_path, "vmap") == []
    assert len(reference) == 10 + 8 + 8 * 3
    assert len(groups_of(jobs())) == 7  # a batch for each variant
    assert_same(results(tmp_path), reference)


def test_vmap_in_several_batches_is_the_same(reference, tmp_path, monkeypatch):
    monkeypatch.setattr(batching, "AT_ONCE", 3)
    some = [job for job in jobs() if job.variant == "WD"]
    assert run(some, tmp_path, "vmap") == []
    ids = {id for job in some for id in job.ids.values()}
    assert_same(results(tmp_path), {id: one for id, one in reference.items() if id in ids})


def test_vmap_pretrains_once_for_all_learning_rates(tmp_path, monkeypatch):
    """But not for those that pretraining has, too, nor for other seeds."""
    some = [job for lr in (1e-2, 1e-3) for job in make(["Pre"], [0, 1], finetune=0, lr=lr, pretrain_lr=3e-3)]
    some += [job for lr in (1e-2, 1e-3) for job in make(["Pre"], [0], finetune=0, lr=lr)]
    calls, real = [], pretrain.greedy
    monkeypatch.setattr(pretrain, "greedy", lambda *args, **how: calls.append(how["lr"]) or real(*args, **how))
    assert run(some, tmp_path / "vmap", "vmap") == []
    assert sorted(calls) == [1e-3, 3e-3, 3e-3, 1e-2]
    assert run(some, tmp_path / "here", "here") == []
    assert len(calls) == 4 + 6
    assert_same(results(tmp_path / "vmap"), results(tmp_path / "here"))


@pytest.mark.usefixtures("recorded")
def test_vmap_with_other_settings(tmp_path):
    other = {"optimiser": "sgd", "batch": 0, "epochs": 9, "fraction": 0.5, "every": 4, "scales": ("sum",)}
    some = make(["RR"], [0, 1], finetune=0, lr=1e-2, **other)
    for engine in ("here", "vmap"):
        assert run(some, tmp_path / engine, engine) == []
    assert_same(results(tmp_path / "vmap"), results(tmp_path / "here"))
    assert {one["status"] for one in results(tmp_path / "here").values()} == {"finished"}


@pytest.mark.usefixtures("recorded")
def test_vmap_with_batch_norm(tmp_path):
    """Every net has running statistics of its own, through all stages. Not by Adam, which blows up the rounding that is
    all that the gradient of a bias before a norm is."""
    some = make(["RR"], [0, 1], norm=True, optimiser="sgd")
    for engine in ("here", "vmap"):
        assert run(some, tmp_path / engine, engine) == []
    found = results(tmp_path / "vmap")
    assert_same(found, results(tmp_path / "here"))
    means = [w for one in found.values() for name, w in one["weights"].items() if name.endswith("running_mean")]
    assert len({tuple(one.tolist()) for one in means}) == len(means) > 0


def test_vmap_refuses_batch_norm_without_momentum(tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "network", lambda *_, **__: torch.nn.BatchNorm1d(6, momentum=None))
    (failure,) = run(make(["Std"], norm=True), tmp_path, "vmap")
    assert "does not do batch norm without momentum: use --engine here" in failure.message


@dataclass(frozen=True, kw_only=True)
class StackedConfig(TinyConfig):
    stackable = (*TinyConfig.stackable, "scales")


class Stacked(Tiny):
    """The scale of the reverse pass does not count here, so that nets that differ in it are one batch."""

    Config = StackedConfig

    def stages(self, config):
        return tuple(replace(stage, light=True) for stage in super().stages(config))


def test_vmap_stacks_what_a_configuration_says(tmp_path, monkeypatch):
    made = [make(["RR"], [0, 1], Stacked(), scales=("mean", scale), finetune=0) for scale in ("sum", "ratio")]
    made = [job for some in made for job in some]
    assert len({id for job in made for id in job.ids.values()}) == 6
    assert [len(part) for part in groups_of(made)] == [8]  # as (mean, sum, mean, ratio), two seeds each
    assert [len(part) for part in groups_of(make(["RR"], [0, 1], scales=("mean", "sum")))] == [2, 2]


def test_weights_that_nobody_needs_are_not_kept(tmp_path):
    assert run(make(["Std"], [0], Stacked(), finetune=0), tmp_path) == []
    assert not (tmp_path / "weights").exists()
    assert len(list((tmp_path / "records").iterdir())) == 1


@pytest.mark.timeout(60)
@pytest.mark.soak
def test_vmap_in_two_processes_is_the_same(reference, tmp_path):
    some = [job for job in jobs() if job.variant in ("Std", "WD", "RR1")]
    assert run(some, tmp_path, "vmap", workers=2) == []
    ids = {id for job in some for id in job.ids.values()}
    assert_same(results(tmp_path), {id: one for id, one in reference.items() if id in ids})


REFUSED = {"dropout": {"dropout": 0.2}, "precision": {"precision": "bfloat16"}, "ema": {"ema": 0.9}}


@pytest.mark.parametrize("what", REFUSED)
def test_vmap_refuses_in_one_line(what, tmp_path):
    (failure,) = run(make(["Std"], [0, 1], **REFUSED[what]), tmp_path, "vmap")
    assert "--engine here" in failure.message
    assert what in failure.message
    assert "\n" not in failure.message
    assert results(tmp_path) == {}


def test_vmap_refuses_dropout_and_does_the_rest(tmp_path):
    (failure,) = run(make(["Drop", "Std"], [0], finetune=0), tmp_path, "vmap")
    assert "--engine here" in failure.message
    assert {one["variant"] for one in results(tmp_path).values()} == {"Std"}


FORGOTTEN = [
    ("vmap", {"tensorboard": True}, "--tensorboard: .* use --engine here"),
    ("vmap", {"compile": True}, "--compile: .* use --engine here"),
    ("vmap", {"address": "auto"}, "add --engine ray"),
    ("here", {"address": "auto"}, "add --engine ray"),
    ("here", {"graphs": True, "compile": True}, "--cuda-graphs goes with --device cuda"),
    ("here", {"graphs": True}, "--cuda-graphs goes with --device cuda"),
    ("vmap", {"graphs": True}, "--cuda-graphs goes with --device cuda"),
    ("ray", {"device": "cuda:1"}, "use --device cuda$"),
]
LAUNCHED = [
    ("vmap", {}, "--engine vmap: torchrun .* only --engine here"),
    ("ray", {}, "--engine ray: torchrun .* only --engine here"),
    ("here", {"workers": 3}, "--workers 3: torchrun's .* leave it out"),
    ("here", {"graphs": True, "device": "cuda"}, "--cuda-graphs: under torchrun .* --compile"),
    ("here", {"device": "cuda:1"}, "--device cuda:1: torchrun .* use --device cuda$"),
]


@pytest.mark.parametrize("launched, engine, plan, message", [
    *((False, *one) for one in FORGOTTEN), *((True, *one) for one in LAUNCHED)
])  # fmt: skip
def test_what_would_be_forgotten_is_refused(launched, engine, plan, message, tmp_path, monkeypatch):
    if launched:
        monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=message):
        run(make(["Std"]), tmp_path, engine, **plan)
    assert not list(tmp_path.iterdir())


def test_nothing_is_done_twice(tmp_path, monkeypatch):
    run(make(["RR"]), tmp_path)
    monkeypatch.setattr(Tiny, "data", None)
    for engine in runner.ENGINES:
        assert run(make(["RR"]), tmp_path, engine) == []


# Divergence


LOST = "stage A, which it starts from, diverged"


@pytest.mark.parametrize("name, engine", [("Ort", "vmap"), ("Pre", "here"), ("RR", "here"), ("RR", "vmap")])
def test_one_diverges_and_the_others_go_on(name, engine, tmp_path):
    stages = {"finetune": 1 if name == "RR" else 0}
    assert run(make([name], [0, 1, 2], infinite=(1,), **stages), tmp_path / "some", engine) == []
    assert run(make([name], [0, 2], **stages), tmp_path / "good") == []
    some = results(tmp_path / "some").values()
    bad = {one["stage"]: one for one in some if one["seed"] == 1}
    assert {one["status"] for one in bad.values()} == {"diverged"}
    assert ("diverged" if name == "Pre" else "the loss was not finite any more") in bad["A"]["note"]
    assert {one["note"] for stage, one in bad.items() if stage != "A"} == ({LOST} if name == "RR" else set())
    assert bad["A"]["metrics"] == {}
    good = {(one["seed"], one["stage"]): one for one in results(tmp_path / "good").values()}
    for one in some:
        if one["seed"] != 1:
            assert one["status"] == "finished"
            wanted = good[one["seed"], one["stage"]]["weights"]
            torch.testing.assert_close(one["weights"], wanted, **CLOSE)
    assert not list(tmp_path.glob("some/checkpoints/*.pt"))


@pytest.mark.parametrize("engine", ["here", "vmap"])
def test_divergence_in_the_last_step_is_found(engine, tmp_path):
    """Its loss is finite, but what comes out of it is not a network any more."""
    setting = {"epochs": 1, "scales": ("sum",), "optimiser": "sgd", "lr": 1e10, "batch": 0}
    made = make(["RR"], [0], weights={"RR": [1e30]}, **setting)
    assert run(made, tmp_path, engine) == []
    found = {one["stage"]: one for one in results(tmp_path).values()}
    assert {stage: one["status"] for stage, one in found.items()} == dict.fromkeys(("A", "AA", "AB"), "diverged")
    assert found["A"]["note"]
    assert found["AB"]["note"] == LOST
