"""Interrupted and resumed trainings: when a checkpoint is written, read, refused and deleted."""

import pytest
import torch
from torch.nn import functional as F

from racecar_lab.training import train
from racecar_lab.training.recipe import Recipe
from racecar_lab.training.single import Single
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.train import Trainer
from tests.lab.tiny import Tiny, TinyConfig, make, plain, run


def trainer(seed=0, loss=F.cross_entropy, **options):
    config, given = TinyConfig(), TrainingOptions(**options)
    torch.manual_seed(seed)
    task = Tiny().data(config, 0, None)["A"]
    one = Training(Tiny().network(config), task, config, Recipe(loss), seed=0, epochs=3)
    return Trainer(Single(one, given), given)


def test_a_checkpoint_is_written_when_the_interval_is_over(tmp_path, monkeypatch):
    """With steps of ten seconds and an interval of 25 seconds: after steps 3 and 6, and not at the end."""
    seconds, saved = [0.0], []
    monkeypatch.setattr(train.time, "monotonic", lambda: seconds[0])

    def loss(output, y):
        seconds[0] += 10
        return F.cross_entropy(output, y)

    one = trainer(loss=loss, interval=25.0)
    real = one.save
    monkeypatch.setattr(one, "save", lambda path: (saved.append(one.step), real(path)))
    one.run(tmp_path / "checkpoint.pt")
    assert saved == [3, 6]


def test_a_resumed_trainer_ends_in_the_same_place(tmp_path):
    whole = trainer()
    (outcome,) = whole.run()

    def loss(output, y):
        if begun.step == 4:
            raise InterruptedError
        return F.cross_entropy(output, y)

    begun, path = trainer(loss=loss, interval=0.0), tmp_path / "checkpoint.pt"
    with pytest.raises(InterruptedError):
        begun.run(path)
    resumed = trainer(seed=1)  # other weights, which the file replaces
    assert resumed.run(path)[0].curves == outcome.curves
    assert plain(resumed.nets.model.state_dict()) == plain(whole.nets.model.state_dict())


@pytest.mark.parametrize("content", ["truncated", "of something else"])
def test_a_checkpoint_that_cannot_be_read_is_named(content, tmp_path):
    path = tmp_path / "checkpoint.pt"
    if content == "truncated":
        trainer().save(path)
        path.write_bytes(path.read_bytes()[:-100])
    else:
        torch.save({"weights": torch.ones(3)}, path)
    with pytest.raises(ValueError, match=r"checkpoint.pt is no checkpoint that can be read; delete it"):
        trainer().run(path)


def test_a_finished_stage_leaves_no_checkpoint(tmp_path):
    run(make(["RR"]), tmp_path, interval=0.0)
    assert list((tmp_path / "checkpoints").iterdir()) == []
