"""Disentangle in its smallest form, on the forty digits that come with racecar."""

import torch

from racecar_lab.experiments import experiment
from racecar_lab.experiments.disentangle import codes
from racecar_lab.experiments.disentangle.config import DisentangleConfig
from racecar_lab.experiments.disentangle.regularisers import VARIANTS
from racecar_lab.stage import Stage

DISENTANGLE = experiment("disentangle")
TINY = {
    "shipped": True, "hidden": 6, "channels": (2, 3), "epochs": 2, "samples": 24, "inverted": 4, "inversion_steps": 2,
    "judge_epochs": 1, "judge_accuracy": 0.0, "encoder_cost": 1.5,
}  # fmt: skip


def config(**changes):
    return DisentangleConfig(**{**TINY, **changes})


def networks(variant="Std", **changes):
    torch.manual_seed(0)
    nets = DISENTANGLE.networks(config(**changes), Stage("A"), None)
    if variant in VARIANTS:
        nets.update({name: make(config(**changes)) for name, make in VARIANTS[variant].networks.items()})
    return nets


def inputs(code, count=5):
    drawn, noise = codes.draw(torch.randn(count, codes.DRAWS, generator=torch.Generator().manual_seed(1)))
    return drawn, codes.to_inputs(drawn, noise, code)
