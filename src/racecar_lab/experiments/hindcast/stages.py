"""Stages of hindcast: the network of every variant, and the rivals that need a second or another network."""

from __future__ import annotations

import math

from torch import nn

from racecar_lab.experiment import Stage
from racecar_lab.experiments.hindcast.config import HindcastConfig
from racecar_lab.networks.periodic import count_parameters, coupling_net, periodic

KINDS = {
    "inverse": "a second network",
    "half": "a second network of half the size",
    "coupling": "an invertible network of coupling layers, as large,",
}
"""Stage of a rival → its network. They are Std's: none has a regulariser."""


def all_stages() -> tuple[Stage, ...]:
    """Stage A, which every variant has, and the rivals, all from fresh weights."""
    rivals = (
        Stage(name, "A" if name == "coupling" else "backward", regularised=False, variants=("Std",), network=network)
        for name, network in KINDS.items()
    )
    return Stage("A"), *rivals


def network_of(config: HindcastConfig, stage: Stage) -> nn.Module:
    """The untrained network of a stage."""
    fields = config.solver.fields
    if stage.name == "half":
        return periodic(fields, max(1, round(config.width / math.sqrt(2))))
    whole = periodic(fields, config.width)
    return coupling_net(fields, count_parameters(whole)) if stage.name == "coupling" else whole
