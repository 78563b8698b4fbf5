"""Interrupted and resumed trainings: when a checkpoint is written, read, refused and deleted."""

import pytest
import torch
from torch.nn import functional as F

from racecar_lab.training import train
from racecar_lab.training.recipe import Recipe
from racecar_lab.training.single import Single
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.train import Trainer
from tests.lab.tiny import Tiny, TinyConfig, make, run


def trainer(loss=F.cross_entropy, **options):
    config = TinyConfig()
    task = Tiny().data(config, 0, None)["A"]
    training = Training(Tiny().network(config), task, config, Recipe(loss), epochs=3)
    return Trainer(Single(training, TrainingOptions(**options)))


def test_a_checkpoint_is_written_when_the_interval_is_over(tmp_path, monkeypatch):
    """With steps of ten seconds and an interval of 25 seconds: after steps 3 and 6, and not at the end."""
    seconds, saved = [0.0], []
    monkeypatch.setattr(train.time, "monotonic", lambda: seconds[0])

    def loss(output, y):
        seconds[0] += 10
        return F.cross_entropy(output, y)

    timed = trainer(loss=loss, interval=25.0)
    monkeypatch.setattr(timed, "save", lambda path: saved.append(timed.step))
    timed.run(tmp_path / "checkpoint.pt")
    assert saved == [3, 6]


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
