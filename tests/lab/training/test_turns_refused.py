"""Settings that networks which take turns do not support are refused before anything is trained."""

import pytest

from racecar_lab.experiment import Stage
from racecar_lab.training.recipe import Recipe, Turn
from tests.lab.tiny import results, run
from tests.lab.toy import LATENT, Toy, ToyConfig, jobs, rebuild


def test_vmap_refuses_turns(tmp_path):
    (failure,) = run(jobs(["Std"]), tmp_path, "vmap")
    who = "discriminator, generator, autoencoder"
    assert failure.message.endswith(f"the vmap engine does not do networks that take turns ({who}): use --engine here")
    assert results(tmp_path) == {}


def test_pretraining_refuses_several_networks(tmp_path):
    (failure,) = run(jobs(["Pre"]), tmp_path)
    message = "Pre: pretraining is for one network, and this stage has several: generator, discriminator"
    assert failure.message == f"ValueError: {message}"
    assert results(tmp_path) == {}


def test_a_recipe_that_cannot_be_is_refused_when_jobs_are_made(monkeypatch):
    turns = Toy().recipe(ToyConfig(), Stage("GAN")).turns

    def recipe(self, config, stage):
        return Recipe(turns=turns, steady=stage.name == "AE")

    monkeypatch.setattr(Toy, "recipe", recipe)
    with pytest.raises(ValueError, match="steady: steps of networks that take turns cannot be recorded; leave it out"):
        jobs()
    with pytest.raises(ValueError, match="looks: there is no look to be taken"):
        Recipe(looks=3)


def test_a_turn_of_nobody_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "recipe", lambda *_: Recipe(turns=(Turn(rebuild, "decoder"),)))
    (failure,) = run(jobs(["Std"]), tmp_path)
    assert "a turn trains network 'decoder'; the networks are: generator, discriminator" in failure.message


def test_a_loss_that_forgets_its_network_is_named(tmp_path, monkeypatch):
    turn = Turn(lambda net, batch, networks: networks["generator"](batch.x[:, :LATENT]).mean(), "generator")
    monkeypatch.setattr(Toy, "recipe", lambda *_: Recipe(turns=(turn,)))
    for variant in ("Std", "RR"):
        (failure,) = run(jobs([variant]), tmp_path / variant)
        assert "the loss of network 'generator' never calls it: there is nothing to train" in failure.message
