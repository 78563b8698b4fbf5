"""A recorded step gives the results of the step itself, in every variant and setting, resumed or not."""

import pytest
import torch

from benchmarks import first_two, plainly
from racecar_lab.config import override
from racecar_lab.experiments import experiment
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.training.optimiser import Fused
from racecar_lab.training.steps.recorded import record
from racecar_lab.training.train import Trainer
from tests.lab.running.test_engines import assert_same
from tests.lab.tiny import ALL, Tiny, make, plain, results, run

SETTINGS = {
    "adam": {},  # and all variants
    "adamw, clip": {"optimiser": "adamw", "clip": 0.5, "schedule": "onecycle", "weight_decay": 0.1, "finetune": 0},
    "whole batch": {"batch": 0, "valid": 0.2, "scales": ("sum",), "fraction": 0.5, "finetune": 0},
    "sgd, batch norm": {"optimiser": "sgd", "ema": 0.9, "norm": True, "dropout": 0.2, "finetune": 0},
}
"""Batch norm is not combined with Adam: the gradient of a bias before it is rounding alone, which Adam enlarges."""


@pytest.fixture
def calls(monkeypatch):
    """The experiment Tiny made steady; a list that grows whenever Python computes its loss."""
    counted, loss = [], Tiny.loss
    monkeypatch.setattr(Tiny, "loss", lambda *args: counted.append(1) or loss(*args))
    monkeypatch.setattr(Tiny, "steady", True)
    return counted


@pytest.mark.parametrize("setting", SETTINGS)
def test_recorded_is_the_same(setting, calls, tmp_path, monkeypatch):
    """Running statistics of batch norm and masks of dropout are the same, too."""
    jobs = make(("Ort", "RR"), **SETTINGS[setting])
    if setting == "adam":
        jobs += make([name for name in ALL if name not in ("Ort", "RR")], finetune=0)
    assert run(jobs, tmp_path / "recorded") == []
    stages = sum(len(job.stages) for job in jobs)
    assert len(calls) == stages
    monkeypatch.setattr(Tiny, "steady", False)
    assert run(jobs, tmp_path / "plain") == []
    assert len(calls) > 3 * stages
    assert_same(results(tmp_path / "recorded"), results(tmp_path / "plain"))


@pytest.mark.parametrize("plan", [{"tensorboard": True}, {"compile": True}])
def test_what_needs_the_step_itself_has_it(plan, calls, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    if "tensorboard" in plan:
        pytest.importorskip("tensorboard")
    assert run(make(["RR"], finetune=0), tmp_path, **plan) == []
    assert len(calls) == 9


def test_resumed_bit_for_bit(calls, tmp_path, monkeypatch):
    jobs, save = make(["RR"], finetune=0, norm=True, dropout=0.2), Trainer.save
    assert run(jobs, tmp_path / "whole") == []

    def interrupt(trainer, path):
        save(trainer, path)
        if trainer.step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(jobs, tmp_path / "parts", interval=0.0)
    assert run(jobs, tmp_path / "parts") == []
    assert plain(results(tmp_path / "parts")) == plain(results(tmp_path / "whole"))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_fused_is_the_optimisers_own_step(kind):
    def steps(wrap):
        torch.manual_seed(0)
        parameters = [torch.randn(3, 4, requires_grad=True), torch.randn(3, requires_grad=True)]
        optimiser = kind(parameters, 0.1, weight_decay=0.01, fused=True)
        one = wrap(optimiser)
        for i in range(5):
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            optimiser.param_groups[0]["lr"] = 0.1 / (i + 1)
            one.step()
        return parameters, optimiser.state_dict()

    torch.testing.assert_close(steps(Fused), steps(lambda optimiser: optimiser), rtol=0, atol=0)


def test_recording_uses_up_no_random_number():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    recorded = record(lambda x: x + torch.randn(3), torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), state)
    first, second = recorded(torch.zeros(3)), recorded(torch.zeros(3))
    torch.manual_seed(0)
    assert torch.equal(first, torch.randn(3))
    assert torch.equal(second, torch.randn(3))


@pytest.mark.parametrize("job", first_two.jobs(), ids=lambda job: "-".join(map(str, first_two.name_of(job)[:2])))
def test_the_laboratory_is_what_was_written_plainly(job, tmp_path):
    one = experiment(job.experiment.name)
    (short,) = make_jobs(one, override(job.base, ["epochs=30"]), [job.variant], [0], None)
    assert run([short], tmp_path) == []
    curves = Store(tmp_path).get(short.ids["A"]).record["curves"]
    wanted = plainly.train(*first_two.name_of(job)[:2], 30)
    for key in ("train_loss", "regulariser"):
        assert curves[key][-1] == pytest.approx(wanted[key], rel=1e-3)
