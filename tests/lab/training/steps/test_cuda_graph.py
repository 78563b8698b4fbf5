"""Steps that are recorded and replayed: the same training as step by step."""

import gc
import weakref

import pytest
import torch

from racecar.lab.running.engines import vmap
from racecar.lab.running.results import Store
from racecar.lab.training.steps import cuda_graph
from racecar.lab.training.steps.cuda_graph import WARM, Captured
from racecar.lab.training.train import Trainer
from racecar.lab.training.variants import regularise, variant
from tests.lab.tiny import Tiny, TinyConfig, make, results, run

SETTINGS = {
    "adam": {},
    "sgd, cosine": {"optimiser": "sgd", "schedule": "cosine", "lr": 0.1},
    "adamw, clip": {"optimiser": "adamw", "clip": 0.3},
    "every second step": {"every": 2},
    "average": {"ema": 0.9},
}


@pytest.fixture
def replayed(monkeypatch):
    """Recording without a GPU: a replay does the step again, with the tensors that it was recorded with."""
    recorded = []

    def record(step):
        recorded.append(step)
        result = torch.zeros(())

        def replay():
            found = step()
            result.resize_as_(found).copy_(found)

        return replay, result

    monkeypatch.setattr(cuda_graph, "record", record)
    monkeypatch.setattr(cuda_graph, "aside", lambda step: step())
    return recorded


def trainer(name, config, fade=False):
    torch.manual_seed(0)
    tiny, which = Tiny(), variant(name)
    task = tiny.data(config, 0, None)["A"]
    module = regularise(tiny.network(config), which, task.train.x, {"scale": "relative"}, {}, config.every)
    return Trainer(
        module, task, config, name="A", seed=0, epochs=config.epochs, loss=tiny.loss, fade=fade,
        coefficient=0.1 if which.meaning else 0.0,
    )  # fmt: skip


@pytest.mark.parametrize("fade", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["Std", "Ort", "RR"])
def test_the_same_training(name, setting, fade, replayed):
    config = TinyConfig(**{"epochs": 12, "batch": 20, **SETTINGS[setting]})
    plain, other = trainer(name, config, fade), trainer(name, config, fade)
    other.captured = Captured(other._whole)
    curves = plain.run().curves, other.run().curves
    kinds = 2 if name == "RR" and config.every == 2 else 1
    assert len(replayed) == kinds, "recorded once for each kind of step"
    assert plain.total > (1 + WARM) * kinds
    for name_, curve in curves[0].items():
        assert curves[1][name_] == pytest.approx(curve, rel=1e-4), name_
    torch.testing.assert_close(dict(plain.module.state_dict()), dict(other.module.state_dict()), rtol=1e-4, atol=1e-6)


def test_it_is_forgotten_after_the_last_step(replayed, monkeypatch):
    """At once, not when garbage is collected: a recording holds the memory of a whole step."""
    monkeypatch.setattr(cuda_graph, "record", lambda step: (lambda: None, step()))
    one = trainer("RR", TinyConfig(epochs=6, batch=20))
    one.captured = Captured(one._whole)
    gone = weakref.ref(one.captured)
    gc.disable()
    try:
        one.run()
        assert gone() is None
    finally:
        gc.enable()


def test_it_goes_on_from_a_checkpoint(replayed, tmp_path):
    """Saved by the one, taken up by the other."""
    config = TinyConfig(epochs=6, batch=20, schedule="cosine")
    whole = trainer("RR", config)
    whole.run()
    first = trainer("RR", config)
    first.captured = Captured(first._whole)
    order, noise, moves = first._epoch(0)
    numbers = first._numbers(0)
    first.module.train()
    for chosen, one in zip(order, numbers, strict=True):
        first._step(first.module, chosen, noise, moves, one)
        first.step += 1
    first.curves.point(0)
    first.save(tmp_path / "checkpoint")
    second = trainer("RR", config)
    second.captured = Captured(second._whole)
    second.run(tmp_path / "checkpoint")
    torch.testing.assert_close(dict(whole.module.state_dict()), dict(second.module.state_dict()), rtol=1e-4, atol=1e-6)


def test_results_are_not_overwritten(replayed):
    step = Captured(lambda x, nothing: torch.stack((x.sum(), x.prod())))
    seen = [step(i % 2, torch.tensor([1.0, i]), None) for i in range(12)]
    assert [one.tolist() for one in seen] == [[1.0 + i, float(i)] for i in range(12)]
    assert len(replayed) == 2


BATCHED = {name: setting for name, setting in SETTINGS.items() if name != "average"} | {
    "batch norm": {"norm": True, "optimiser": "sgd"}
}
"""What the vmap engine does."""


@pytest.mark.parametrize("setting", BATCHED)
def test_many_nets_at_once(setting, replayed, tmp_path, monkeypatch):
    """The vmap engine's steps, replayed and not."""

    class Replayed(vmap.Batched):
        def __init__(self, *args):
            super().__init__(*args)
            self.captured = Captured(self._whole)

    given = {"epochs": 12, "batch": 20, "finetune": 0, **BATCHED[setting]}
    jobs = make(["Std", "RR"], [0, 1], coefficients={"RR": (0.1, 0.5)}, **given)
    jobs += make(["RR"], [0], **{**given, "lr": 3e-3})
    assert run(jobs, tmp_path / "plain", "vmap") == []
    monkeypatch.setattr(vmap, "Batched", Replayed)
    assert run(jobs, tmp_path / "replayed", "vmap") == []
    assert len(replayed) == (3 if "every" in given else 2), "once for each batch and kind of step"
    wanted, found = (results(tmp_path / name) for name in ("plain", "replayed"))
    assert len(found) == 7
    for id, one in wanted.items():
        torch.testing.assert_close(found[id]["weights"], one["weights"], rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("setting", BATCHED)
def test_many_nets_on_a_gpu(setting, tmp_path):
    given = {"epochs": 12, "batch": 20, "finetune": 8, **BATCHED[setting]}
    jobs = make(["Std", "Ort", "RR", "lRR"], [0, 1], **given)
    for graphs in (False, True):
        assert run(jobs, tmp_path / str(graphs), "vmap", device="cuda", graphs=graphs) == []
    plain, replayed = (results(tmp_path / str(graphs)) for graphs in (False, True))
    assert plain.keys() == replayed.keys()
    for name, one in plain.items():
        for curve in ("train_loss", "regulariser"):
            assert replayed[name]["curves"][curve] == pytest.approx(one["curves"][curve], rel=1e-2, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("setting", SETTINGS)
def test_on_a_gpu(setting, tmp_path):
    """All variants, replayed and not."""
    given = {"epochs": 12, "batch": 20, "finetune": 8, **SETTINGS[setting]}
    jobs = make(["Std", "Ort", "Pre", "RR", "lRR"], [0], **given)
    for graphs in (False, True):
        assert run(jobs, tmp_path / str(graphs), device="cuda", graphs=graphs) == []
    plain, replayed = (results(tmp_path / str(graphs)) for graphs in (False, True))
    assert plain.keys() == replayed.keys()
    for name, one in plain.items():
        for curve in ("train_loss", "regulariser"):
            assert replayed[name]["curves"][curve] == pytest.approx(one["curves"][curve], rel=1e-2, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("graphs", [False, True])
def test_the_memory_of_a_run_is_its_own(graphs, tmp_path):
    """Runs of one process after another, collected or not, need what the first one of them needs."""
    gc.disable()
    try:
        assert run(make(["RR"], range(4), epochs=6, batch=20), tmp_path, device="cuda", graphs=graphs) == []
    finally:
        gc.enable()
    peaks = {}
    for one in Store(tmp_path).runs():
        peaks.setdefault(one.stage, []).append(one.record["cost"]["peak_memory"])
    for stage, some in peaks.items():
        assert max(some) == pytest.approx(min(some), rel=0.02), stage


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_scaled_losses_are_refused(tmp_path):
    (failure,) = run(make(["Std"], [0], precision="float16"), tmp_path, device="cuda", graphs=True)
    assert "precision=bfloat16" in failure.message
