"""How strange single pictures are to a trained net, by every score that shift compares; and pictures that should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from racecar.inspect import sample_errors
from racecar_lab.datasets import corruption
from racecar_lab.experiment import Task
from racecar_lab.measures.features import deployed
from racecar_lab.measures.probe import body, features
from racecar_lab.measures.strangeness import Mahalanobis, energy, squared_errors, unsure

SHIFTS = {
    "noise": "Gaussian noise",
    "blur": "Gaussian blur",
    "contrast": "less contrast",
    "unseen": "classes that the net never saw",
}
CHANGES = ("noise", "blur", "contrast")
"""Those that are made, by so much as the configuration says."""
SEVERITIES = ("mild", "strong")
CALIBRATED = 2000
"""Training pictures whose reverse data give batch norms their statistics."""
BATCH = 500
"""Pictures that are scored at once."""


class Scores(NamedTuple):
    """Of N pictures: numbers (N,), higher for stranger."""

    whole: dict[str, Tensor]
    """By the name of the score."""
    layers: dict[str, dict[str, Tensor]]
    """Layer → "reverse" and "layerwise": its own error."""


Scorer = Callable[[Tensor], Scores]
"""From pictures (N, C, H, W)."""


def of_net(model: nn.Module, task: Task, compared: Mapping[str, Any]) -> Scorer:
    """By a classifier in evaluation mode. Gaussians and, for batch norms, reverse statistics are fitted to its training
    pictures.

    Args:
        compared: arguments of ``Racecar``: the layers whose errors count, and what is applied to the rebuilt picture.
    """
    seen = task.train.x[:CALIBRATED]
    ways = {"reverse": "full", "layerwise": "layerwise"}
    cars = {name: deployed(model, seen, mode, compared, BATCH) for name, mode in ways.items()}
    net = body(model)
    gaussians = Mahalanobis.fit(features(net, task.train.x), task.train.y)

    @torch.no_grad()
    def score(x: Tensor) -> Scores:
        errors = {name: sample_errors(rr, x, BATCH) for name, rr in cars.items()}
        layers = {layer: {name: some[layer] for name, some in errors.items()} for layer in errors["reverse"]}
        logits = torch.cat([model(part) for part in x.split(BATCH)])
        whole = {name: torch.stack(list(some.values())).mean(0) for name, some in errors.items()}
        whole |= {"input": next(iter(layers.values()))["reverse"]}
        whole |= {"softmax": unsure(logits), "energy": energy(logits), "mahalanobis": gaussians(features(net, x))}
        return Scores(whole, layers)

    return score


def of_autoencoder(model: nn.Module) -> Scorer:
    """By how badly an autoencoder rebuilds a picture: the squared error, as usual; and the same over the picture's own
    square, as reverse errors are."""

    @torch.no_grad()
    def score(x: Tensor) -> Scores:
        plain, relative = squared_errors(x, torch.cat([model(part) for part in x.split(BATCH)]))
        return Scores({"autoencoder": plain, "autoencoder_relative": relative}, {})

    return score


def corrupted(
    known: Tensor, strengths: Mapping[str, tuple[float, ...]], generator: torch.Generator
) -> dict[tuple[str, str], Tensor]:
    """Pictures (N, C, H, W), changed: shift and severity → (N, C, H, W).

    Args:
        strengths: of "noise", "blur" and "contrast", for each of ``SEVERITIES``.
        generator: draws the noise.
    """
    changes: dict[str, Callable[[float], Tensor]] = {
        "noise": lambda sd: corruption.noise(known, sd, generator),
        "blur": lambda sigma: corruption.blur(known, sigma),
        "contrast": lambda share: corruption.contrast(known, share),
    }
    return {
        (shift, severity): change(value)
        for shift, change in changes.items()
        for severity, value in zip(SEVERITIES, strengths[shift], strict=True)
    }
