"""All built-in experiments by name. Each has a file or a folder of its own."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from racecar_lab.experiment import Experiment
from racecar_lab.experiments.digits import Digits
from racecar_lab.experiments.disentangle import Disentangle
from racecar_lab.experiments.few_labels import FewLabels
from racecar_lab.experiments.hindcast import Hindcast
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
    Disentangle(),
)
OURS: tuple[Experiment[Any], ...] = (
    Slices(), SlicesMnist(), SlicesCifar(), FewLabels(), LongTraining(), Safety(), Shift(),
    Sequences(), Streams(), Hindcast(),
)  # fmt: skip
EXPERIMENTS: dict[str, Experiment[Any]] = {entry.name: entry for entry in (*PAPER, *OURS)}
"""Name → built-in experiment: those of the paper in its order, then ours."""


def experiment(name: str) -> Experiment[Any]:
    """Return the built-in experiment with this name, or a user's experiment, written as package.module:CLASS."""
    if ":" in name:
        return own_experiment(name, reserved=EXPERIMENTS)
    if name not in EXPERIMENTS:
        matches = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {matches[0]!r}?" if matches else f"the experiments are: {', '.join(EXPERIMENTS)}"
        raise ValueError(f"no experiment {name!r}; {hint}; one of your own is package.module:CLASS")
    return EXPERIMENTS[name]


def experiments(added: Iterable[str] = ()) -> dict[str, Experiment[Any]]:
    """Return all built-in experiments by name, and the ``added`` ones of a user, each written as
    package.module:CLASS."""
    return EXPERIMENTS | {entry.name: entry for entry in map(experiment, added)}
