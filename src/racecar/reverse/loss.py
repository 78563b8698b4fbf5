"""The racecar loss of one forward pass: its terms, what they are divided by, and their weighted sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecar.plan.layer import Layer
from racecar.plan.slices import cut_shape
from racecar.reverse import linear_mode, reverse, terms, weights
from racecar.reverse.health import DeadFlags
from racecar.reverse.masks import PassMasks
from racecar.reverse.noise_floors import noise_floors
from racecar.reverse.norm_statistics import PassStatistics
from racecar.reverse.prepared import PreparedPlan
from racecar.reverse.slicing import BatchSlice
from racecar.reverse.tape import Tape
from racecar.reverse.values import ForwardValues
from racecar.support.compiling import compiling
from racecar.watch.names import shown


class Outcome(NamedTuple):
    """The result of one reverse pass."""

    loss: Tensor
    terms: dict[str, Tensor]
    """Layer name → detached term, before λ."""
    dead: DeadFlags | None
    """Which layers look dead; None: this step was not checked."""


def no_loss(inputs: Sequence[Tensor]) -> Tensor:
    """The loss without a reverse pass: 0, on the device of the inputs."""
    return torch.zeros((), device=inputs[0].device if inputs else None)


class Denominators(NamedTuple):
    """What squared errors are divided by, beside Σ d²."""

    energy: Tensor | None
    """The mean square of the model's input, for scale "anchored"."""
    floors: Tensor | None
    """For each term, Σ d² up to which d is rounding noise; None: it is 0 for all terms."""


def denominators(
    prepared: PreparedPlan, values: ForwardValues, part: BatchSlice, masks: PassMasks | None
) -> Denominators:
    """The denominators of one forward pass."""
    energy = None
    if prepared.settings.scale == "anchored":
        energy = terms.input_energy(values.inputs, None if masks is None else masks.inputs)
    norms = [term.norm for term in prepared.terms.values()]
    moments = [None if norm is None else values.moments(norm, *part) for norm in norms]
    if masks is not None:
        pairs = zip(norms, moments, strict=True)
        moments = [masks.without_padding(norm.outputs[0], m) if norm and m else None for norm, m in pairs]
    if all(m is None for m in moments):
        return Denominators(energy, None)
    shapes = [values.tensor(term.layer.d).shape for term in prepared.terms.values()]
    if part.samples < part.size:
        places = [values.batch(term.layer.d) for term in prepared.terms.values()]
        shapes = [cut_shape(shape, where, *part) for shape, where in zip(shapes, places, strict=True)]
    return Denominators(energy, noise_floors(moments, [shape.numel() for shape in shapes]))


def layer_terms(
    prepared: PreparedPlan, tape: Tape, divide_by: Denominators, check: bool, statistics: PassStatistics | None = None
) -> tuple[Tensor, Tensor | None]:
    """Run the reverse pass and compute the terms of the constrained layers.

    Args:
        prepared: the plan.
        tape: of the forward pass.
        divide_by: the denominators of the same pass.
        check: whether the step is checked for dead layers.
        statistics: what batch norms read and record.

    Returns:
        The terms, (layers,), and √Σ d² of each layer; None instead if there is no check, or if it can see from the
        terms alone where d is 0.
    """
    settings = prepared.settings
    relative = settings.scale in terms.RELATIVE
    errors, sizes, counts = [], [], []
    # Each layer is compared as soon as it is rebuilt: a compiler then reads d' once and keeps nothing for later.
    for layer, rebuilt in _rebuilt(prepared, tape, statistics):
        term = prepared.terms.get(layer.index)
        if term is None:
            continue
        value, weight = term.value, term.weight
        d = tape.tensors[value] if settings.reach == "both" else tape.tensors[value].detach()
        if weight is not None:
            batch = prepared.layer_graph.batch[value]
            weight = weights.spread(weight, d.shape, batch.dim if batch else 0, layer.name)
        mask = None
        if tape.masks is not None:
            mask = tape.masks.of(value, d.shape, f"layer {shown(layer.name)!r}")
        if isinstance(rebuilt, Tensor):
            errors.append(terms.squared_error(d, rebuilt, weight, mask))
        else:
            errors.append(linear_mode.error(d, rebuilt, weight, mask))
        counts.append(terms.counted(d, mask if settings.scale in terms.AVERAGES else None))
        if relative or check:
            sizes.append(terms.size(d, weight, settings.scale, mask))
    for in_reverse_order in (errors, sizes, counts):
        in_reverse_order.reverse()
    if not compiling() and prepared.lambdas.device != errors[0].device:  # the model was moved
        prepared.move_lambdas(errors[0])
    norms = terms.totals(sizes, torch.linalg.vector_norm) if sizes else None
    vector = terms.terms(
        errors,
        counts,
        settings.scale,
        sizes=norms,
        floors=divide_by.floors,
        share=tape.part.size / tape.part.samples,
        energy=divide_by.energy,
    )
    # A relative term is 0 where d is 0; in mode "linear" it is 0 where A is orthogonal, too.
    return vector, norms if check and (settings.mode == "linear" or not relative) else None


def _rebuilt(
    prepared: PreparedPlan, tape: Tape, statistics: PassStatistics | None
) -> Iterator[tuple[Layer, Tensor | linear_mode.LinearStep]]:
    """Every layer that the loss needs, last first, with its d'_m; in mode "linear" with the step to compute AᵀAh."""
    if prepared.settings.mode == "linear":
        return linear_mode.steps(prepared.needs, tape)
    return reverse.steps(prepared.needs, tape, prepared.settings.input_activation, statistics)


def weighted_sum(prepared: PreparedPlan, terms: Tensor, sizes: Tensor | None, checked: Sequence[int]) -> Outcome:
    """The loss Σ λ_m · term_m, or its mean over the layers.

    Args:
        prepared: the plan.
        terms, sizes: from :func:`layer_terms`.
        checked: which terms to check for dead layers, by their position.
    """
    loss, detached = (terms * prepared.lambdas).sum(), terms.detach()
    dead_flags = None
    if checked:
        invalid = ~detached.isfinite()
        dead = invalid if prepared.settings.mode == "linear" else (detached == 0) | invalid
        dead = dead if sizes is None else dead | (sizes.detach() == 0)
        if len(checked) < len(prepared.names):
            dead = torch.stack([dead[i] for i in checked])
        layers = [term.layer for term in prepared.terms.values()]
        dead_flags = DeadFlags(tuple(layers[i].names for i in checked), dead)
    return Outcome(loss, dict(zip(prepared.names, detached.unbind(), strict=True)), dead_flags)
