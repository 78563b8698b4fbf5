"""The experiments, one file each."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from racecar_lab.experiment import Experiment
from racecar_lab.experiments.digits import Digits
from racecar_lab.experiments.few_labels import FewLabels
from racecar_lab.experiments.information import Information
from racecar_lab.experiments.long_training import LongTraining
from racecar_lab.experiments.mnist import Mnist
from racecar_lab.experiments.peaks import Peaks
from racecar_lab.experiments.safety import Safety
from racecar_lab.experiments.sequences import Sequences
from racecar_lab.experiments.shift import Shift
from racecar_lab.experiments.slices import Slices, SlicesCifar, SlicesMnist
from racecar_lab.experiments.smoke import Smoke
from racecar_lab.experiments.smoke_autoencoder import SmokeAutoencoder
from racecar_lab.experiments.streams import Streams
from racecar_lab.experiments.texture_shape import TextureShape
from racecar_lab.own import own_experiment

PAPER: tuple[Experiment[Any], ...] = (
    Digits(),
    Peaks(),
    Information(),
    Mnist(),
    TextureShape(),
    Smoke(),
    SmokeAutoencoder(),
)
OURS: tuple[Experiment[Any], ...] = (
    Slices(), SlicesMnist(), SlicesCifar(), FewLabels(), LongTraining(), Safety(), Shift(),
    Sequences(), Streams(),
)  # fmt: skip
EXPERIMENTS: dict[str, Experiment[Any]] = {one.name: one for one in (*PAPER, *OURS)}
"""By name: those of the paper in its order, then our own."""


def experiment(name: str) -> Experiment[Any]:
    """The experiment of that name, or one of a user's own, package.module:CLASS."""
    if ":" in name:
        return own_experiment(name, reserved=EXPERIMENTS)
    if name not in EXPERIMENTS:
        close = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the experiments are: {', '.join(EXPERIMENTS)}"
        raise ValueError(f"no experiment {name!r}; {hint}; one of your own is package.module:CLASS")
    return EXPERIMENTS[name]


def experiments(own: Iterable[str] = ()) -> dict[str, Experiment[Any]]:
    """All experiments by name, with those of a user's own, each given as package.module:CLASS."""
    return EXPERIMENTS | {each.name: each for each in map(experiment, own)}
