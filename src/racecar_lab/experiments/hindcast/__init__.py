"""Hindcast: a net that steps a physical system forward and, run backwards, steps it back. (Ours.)"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn import functional as F

from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Stage, Task, Trained
from racecar_lab.experiments.hindcast.claims import claims
from racecar_lab.experiments.hindcast.config import HindcastConfig
from racecar_lab.experiments.hindcast.figures import all_figures
from racecar_lab.experiments.hindcast.measuring import measure_steps
from racecar_lab.experiments.hindcast.splitting import steps_of
from racecar_lab.experiments.hindcast.stages import KINDS, all_stages, network_of
from racecar_lab.experiments.shared import weight_of
from racecar_lab.search_space import Search
from racecar_lab.training.recipe import Recipe

OURS = ("RR", "lRR", "Lin", "RR1")
"""Variants with a reverse pass. RR1's is the cycle loss of a net that is run backwards: the input, a step forward, the
reverse pass, and the distance to the input."""


class Hindcast(Experiment[HindcastConfig]):
    name = "hindcast"
    Config = HindcastConfig
    quick = Quick(
        {"size": 32, "width": 8, "samples": 128, "batch": 8, "epochs": 6, "tests": 4, "lr": 1e-2, "weight": 0.1},
        seeds=1,
    )
    variants = ("Std", "Ort", *OURS)
    seeds = 10
    search = Search(
        lrs={"adam": (1e-3, 3e-3, 1e-2)},
        weights={
            "Ort": (0.0, 1e-4, 1e-3, 1e-2, 1e-1),
            **dict.fromkeys(OURS, (0.0, 1e-3, 1e-2, 1e-1, 1.0)),
        },
        metric="valid_backward",
        higher=False,
        limit=("valid_learnt", 0.25),  # else a large λ would step back well, and forward no longer
        stages=("A", *KINDS),
        apart=True,  # every rival has a learning rate of its own
        valid=0.125,
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Hindcast: a net that steps a system forward, run backwards",
        section="ours",
        summary=(
            "Six convolutions learn to step waves, or a field that is carried along, forward in time. Run backwards by "
            "the reverse pass they step it back, with the weights that they have. Beside them: orthogonality, the "
            "cycle loss (RR1), a second network that learns to step back (of the same size, and of half), and a "
            "network of coupling layers, which has an exact inverse. With viscosity the system forgets, and no method "
            "can step back."
        ),
        figures=all_figures,
    )

    def data(self, config: HindcastConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        return steps_of(config.solver, config.size, config.samples, config.tests, config.valid, seed)

    def network(self, config: HindcastConfig, dropout: float = 0.0) -> nn.Module:
        return network_of(config, Stage("A"))

    def networks(
        self, config: HindcastConfig, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0
    ) -> nn.Module:
        return network_of(config, stage)

    def stages(self, config: HindcastConfig) -> tuple[Stage, ...]:
        return all_stages()

    def weight(self, config: HindcastConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: HindcastConfig) -> dict[str, Any]:
        return dict(config.loss)

    def recipe(self, config: HindcastConfig, stage: Stage) -> Recipe:
        return Recipe(loss=F.mse_loss)

    def measure(self, config: HindcastConfig, trained: Trained) -> Measured:
        return measure_steps(config, trained)
