"""Prepare what ``racecar inspect`` measures: a model, its samples, and the chosen layers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from torch import nn

from racecar.cli.inspect.samples import Samples, load_samples
from racecar.cli.target.inputs import Example, arguments, draw, with_batch
from racecar.cli.target.target import Target
from racecar.plan.plan import Plan
from racecar.racecar import call_arguments
from racecar.reverse.engine import plan_of
from racecar.reverse.settings import Settings
from racecar.watch.names import choose

NOISE = 16
"""Number of noise samples that are drawn if there are no data."""
USUAL = 64
"""Default number of samples of up to 3×64×64 numbers; larger samples are fewer, because all activations are kept."""
FEWEST = 8
"""Least default number of samples, however large they are."""


@dataclass(frozen=True, eq=False)
class LookedAt:
    """A model to inspect, with samples that it accepts."""

    model: nn.Module
    inputs: Example
    """The samples in the form in which the model is called."""
    samples: Samples
    """The samples of the model's first input, with labels if known."""
    plan: Plan
    """The plan of the reverse pass, with default settings."""
    layers: tuple[str, ...]
    """Names of the layers whose singular vectors are shown."""


def prepare(target: Target, data: Path | None, limit: int | None, patterns: str, seed: int) -> LookedAt:
    """Load samples or draw noise, plan the model on them, and choose the layers.

    Args:
        target: the model and its inputs.
        data: folder or file of samples; None: noise.
        limit: most samples; None: 64, fewer of large ones.
        patterns: layer-name patterns, separated by commas; "": the first layer.
        seed: seed of the noise.
    """
    limit = limit or max(FEWEST, min(USUAL, USUAL * 3 * 64 * 64 // prod(target.inputs[0].shape[1:])))
    if data is None:
        single = all(given.shape[0] == 1 for given in target.inputs)
        tensors = draw(with_batch(target.inputs, min(NOISE, limit)) if single else target.inputs, seed, target.dtype)
        samples = Samples(tensors[0], None, f"noise, {len(tensors[0])} samples: what is seen of noise says little")
    elif len(target.inputs) > 1:
        raise ValueError(f"--data is for models with one input; {target.name} takes {len(target.inputs)}")
    else:
        samples = load_samples(data, target.inputs[0], limit, target.dtype)
        tensors = [samples.inputs]
    inputs = arguments(target.inputs, tensors)
    plan = plan_of(target.model, *call_arguments(inputs), Settings())
    return LookedAt(target.model, inputs, samples, plan, chosen(plan, patterns))


def chosen(plan: Plan, patterns: str) -> tuple[str, ...]:
    """Names of the layers that match a pattern, each weight once, in the order of the model; "": the first layer."""
    layers = [entry.layer for entry in plan if entry.layer is not None]
    split = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    matching = [layers[i] for i in choose(split, [layer.names for layer in layers], "--layers:")] or layers[:1]
    return tuple(dict.fromkeys(layer.name.partition("#")[0] for layer in matching))  # "#2": the same weight again
