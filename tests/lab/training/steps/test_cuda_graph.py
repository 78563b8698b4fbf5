"""Training by replayed CUDA graphs equals training by eager steps."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch

from racecar_lab.running.engines import vmap
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin, training
from racecar_lab.training.recipe import Recipe
from racecar_lab.training.single import Single
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.steps import cuda_graph, vmapped
from racecar_lab.training.steps.cuda_graph import WARM_UPS, Captured, CudaGraph
from racecar_lab.training.train import Trainer
from racecar_lab.training.variants import variant
from tests.lab import toy
from tests.lab.tiny import Tiny, TinyConfig, make, results, run
from tests.pairwise import pairwise

SETTINGS = {
    "adam": {},
    "sgd, cosine": {"optimiser": "sgd", "schedule": "cosine", "lr": 0.1},
    "adamw, clip, one cycle": {"optimiser": "adamw", "clip": 0.3, "schedule": "onecycle", "weight_decay": 0.1},
    "every second step": {"every": 2},
    "average": {"ema": 0.9},
}


@pytest.fixture
def replayed(monkeypatch):
    """Capture without a GPU: a replay calls the step again, with the tensors of the capture."""
    captured = []

    def capture(step):
        captured.append(step)
        result = torch.zeros(())

        def replay():
            again = step()
            result.resize_as_(again).copy_(again)

        return replay, result

    monkeypatch.setattr(cuda_graph, "capture", capture)
    monkeypatch.setattr(cuda_graph, "warm_up_on_side_stream", lambda step: step())
    return captured


def trainer(name, config, fade=False, graphed=False):
    torch.manual_seed(0)
    tiny = Tiny()
    task = tiny.data(config, 0, None)["A"]
    of_tiny = Training(
        tiny.network(config), task, config, Recipe(fade=fade), epochs=config.epochs,
        variant=variant(name), weight=0.1, reverse={"scale": "relative"},
    )  # fmt: skip
    nets = Single(of_tiny, TrainingOptions())
    if graphed:
        nets.steps = [CudaGraph(step) for step in nets.steps]
    return Trainer(nets)


@pytest.mark.parametrize("setting, name, fade", pairwise([*SETTINGS], ["Std", "Ort", "RR"], [False, True]))
def test_the_same_training(name, setting, fade, replayed):
    config = TinyConfig(**{"epochs": 12, "batch": 20, **SETTINGS[setting]})
    plain, graphed = trainer(name, config, fade), trainer(name, config, fade, graphed=True)
    (wanted,), (outcome,) = plain.run(), graphed.run()
    kinds = 2 if name == "RR" and config.every == 2 else 1
    assert len(replayed) == kinds, "recorded once for each kind of step"
    assert plain.total > (1 + WARM_UPS) * kinds
    for curve, values in wanted.curves.items():
        assert outcome.curves[curve] == pytest.approx(values, rel=1e-4), curve
    torch.testing.assert_close(weights(graphed), weights(plain), rtol=1e-4, atol=1e-6)


def weights(trainer):
    return dict(trainer.nets.model.state_dict())


def test_a_graph_is_released_after_the_last_step(replayed, monkeypatch):
    """At once, and not when garbage is collected: a graph holds the memory of a whole step."""
    monkeypatch.setattr(cuda_graph, "capture", lambda step: (lambda: None, step()))
    graphed = trainer("RR", TinyConfig(epochs=6, batch=20), graphed=True)
    captured = weakref.ref(graphed.nets.steps[0]._captured)
    gc.disable()
    try:
        graphed.run()
        assert captured() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("block", [256, 4])
def test_resumed(block, replayed, tmp_path, monkeypatch):
    """A checkpoint of one training is loaded by another, wherever a block of hyperparameters ends."""
    monkeypatch.setattr(cuda_graph, "BLOCK", block)
    config, path = TinyConfig(epochs=6, batch=20, schedule="cosine"), tmp_path / "checkpoint"
    whole, first, second = trainer("RR", config), *(trainer("RR", config, graphed=True) for _ in range(2))
    whole.run()

    def interrupt(epoch):
        first.save(path)
        raise InterruptedError

    first.curves.due = lambda epoch: epoch == 2
    first._point = interrupt
    with pytest.raises(InterruptedError):
        first.run()
    second.run(path)
    torch.testing.assert_close(weights(second), weights(whole), rtol=1e-4, atol=1e-6)


def test_networks_that_take_turns(replayed, tmp_path):
    """Each network's step has a graph of its own."""
    (job,) = toy.jobs(["RR"], epochs=4, norm=True)
    stage, task = job.stages[0], job.experiment.data(job.config, 0, None)["A"]
    weights = []
    for graphed in (False, True):
        nets = Single(training(job, stage, task, begin(job, stage, task, Store(tmp_path), "cpu")), TrainingOptions())
        if graphed:
            nets.steps = [CudaGraph(step) for step in nets.steps]
        Trainer(nets).run()
        weights.append(dict(nets.model.state_dict()))
    assert len(replayed) == 2
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-6)


def test_results_are_not_overwritten(replayed):
    step = Captured(lambda kind, x, nothing: torch.stack((x.sum(), x.prod() + kind)))
    results = [step(i % 2, torch.tensor([1.0, i]), None) for i in range(12)]
    assert [result.tolist() for result in results] == [[1.0 + i, float(i + i % 2)] for i in range(12)]
    assert len(replayed) == 2


BATCHED = {name: setting for name, setting in SETTINGS.items() if name != "average"} | {
    "batch norm": {"norm": True, "optimiser": "sgd"}
}
"""Settings that the vmap engine supports."""


@pytest.mark.parametrize("setting", BATCHED)
def test_many_nets_at_once(setting, replayed, tmp_path, monkeypatch):
    """The vmap engine with CUDA graphs equals the vmap engine without."""

    class Replayed(vmap.Vmapped):
        def __init__(self, trainings, options):
            super().__init__(trainings, replace(options, graphs=True))

    config = {"epochs": 12, "batch": 20, "finetune": 0, **BATCHED[setting]}
    names = ["Std", "RR"] if setting == "adam" else ["RR"]
    jobs = make(names, [0, 1], weights={"RR": (0.1, 0.5)}, **config)
    jobs += make(["RR"], [0], **{**config, "lr": 3e-3})
    with monkeypatch.context() as patch:  # test_engines has the recorded steps, which take their time to record
        patch.setattr(vmapped, "RECORDED", 10**9)
        assert run(jobs, tmp_path / "plain", "vmap") == []
    monkeypatch.setattr(vmap, "Vmapped", Replayed)
    assert run(jobs, tmp_path / "replayed", "vmap") == []
    assert len(replayed) == (2 if "every" in config else len(names)), "once for each batch and kind of step"
    plain, graphed = (results(tmp_path / name) for name in ("plain", "replayed"))
    assert len(graphed) == 3 + 2 * len(names)
    for id, record in plain.items():
        torch.testing.assert_close(graphed[id]["weights"], record["weights"], rtol=1e-3, atol=1e-5)


def check_replayed(jobs, folder, engine):
    """Assert that CUDA graphs give the same curves as steps without them."""
    for graphs in (False, True):
        assert run(jobs, folder / str(graphs), engine, device="cuda", graphs=graphs) == []
    plain, replayed = (results(folder / str(graphs)) for graphs in (False, True))
    assert plain.keys() == replayed.keys()
    for id, record in plain.items():
        for curve in ("train_loss", "regulariser"):
            assert replayed[id]["curves"][curve] == pytest.approx(record["curves"][curve], rel=1e-2, abs=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("setting", BATCHED)
def test_many_nets_on_a_gpu(setting, tmp_path):
    jobs = make(["Std", "Ort", "RR", "lRR"], [0, 1], **{"epochs": 12, "batch": 20, "finetune": 8, **BATCHED[setting]})
    check_replayed(jobs, tmp_path, "vmap")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("setting", SETTINGS)
def test_on_a_gpu(setting, tmp_path):
    """All variants, with CUDA graphs and without."""
    config = {"epochs": 12, "batch": 20, "finetune": 8, **SETTINGS[setting]}
    jobs = make(["Std", "Ort", "Pre", "RR", "lRR"], [0], **config)
    check_replayed(jobs, tmp_path, "here")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("graphs", [False, True])
def test_the_memory_of_a_run_is_its_own(graphs, tmp_path):
    """Later runs of a process report the same peak memory as its first one, garbage collected or not."""
    gc.disable()
    try:
        assert run(make(["RR"], range(4), epochs=6, batch=20), tmp_path, device="cuda", graphs=graphs) == []
    finally:
        gc.enable()
    peaks = {}
    for run_ in Store(tmp_path).runs():
        peaks.setdefault(run_.stage, []).append(run_.record["cost"]["peak_memory"])
    for stage, values in peaks.items():
        assert max(values) == pytest.approx(min(values), rel=0.02), stage


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_scaled_losses_are_refused(tmp_path):
    (failure,) = run(make(["Std"], [0], precision="float16"), tmp_path, device="cuda", graphs=True)
    assert "precision=bfloat16" in failure.message
