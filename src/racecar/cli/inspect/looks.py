"""The looks that ``racecar inspect`` takes at a network: one function each, from a subject to sections."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod, sqrt

from torch import Tensor

from racecar import inspect
from racecar.cli.inspect.findings import Chapter
from racecar.cli.inspect.looked_at import LookedAt
from racecar.inspect import Invertibility, Lpips, SingularVectors, figures
from racecar.inspect.matrices import weight_of
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.support.torch_private import AnyBatchNorm

ALL = 512
"""Of a layer with up to so many singular vectors all are computed, of a larger one the first k."""
OPERATOR = 3 * 64 * 64
"""Largest input on which the singular vectors of a whole convolution are computed: seconds, not minutes."""
SWEPT = 12
"""Up to so many layers can be told apart in a figure over the number of bins."""


STATISTICS = {
    "calibrated": "Batch norm has its running statistics, and in reverse those of the reverse data, calibrated on "
    "these samples.",
    "batch": "Batch norm has the statistics of these samples, both ways.",
    "running": "Batch norm has its running statistics both ways; those are of forward data, and can be far off on the "
    "reverse pass.",
}
"""What batch norm may use, and how the page says so."""


@dataclass(frozen=True)
class Choices:
    """What the user chose about the looks."""

    k: int
    statistics: str
    """A key of ``STATISTICS``."""
    input_activation: str | None
    lpips: Lpips | None


def looks(subject: LookedAt, choices: Choices) -> dict[str, Callable[[], list[Chapter]]]:
    """What there is to do, in order: a title for the progress bar → what makes the sections."""
    layers = {
        f"singular vectors of {name}": partial(singular_vectors, subject, name, choices) for name in subject.layers
    }
    return {
        "plan": partial(plan, subject),
        **layers,
        "first layer and data": partial(first_layer, subject, choices),
        "reverse pass": partial(reverse_pass, subject, choices),
        "information plane": partial(information_plane, subject),
        "plasticity": partial(plasticity, subject),
    }


def plan(subject: LookedAt) -> list[Chapter]:
    """How the reverse pass treats every layer."""
    fields = ("name", "kind", "constrained", "source", "reason")
    record = [{name: getattr(entry, name) for name in fields} for entry in subject.plan]
    count = sum(entry.constrained for entry in subject.plan)
    finding = f"{count} of {len(record)} layers can be constrained."
    return [Chapter("plan", "Plan", table=str(subject.plan), record=record, finding=finding)]


def singular_vectors(subject: LookedAt, layer: str, choices: Choices) -> list[Chapter]:
    """Right singular vectors of a layer's matrix, by value and by what they carry of the samples."""
    found = _of_matrix(subject, layer, choices.k)
    by_data = found.ordered("data")
    name = f"singular_vectors_{_file_name(layer)}"
    words = (
        "What the layer looks for. Racecar training drives them to the features of the data at singular values near 1, "
        "which need not be the largest; so they are sorted by value, and by the share of the samples that they carry."
    )
    drawn = {
        f"{name}_by_value": figures.vectors_figure(found, choices.k),
        f"{name}_by_data": figures.vectors_figure(by_data, choices.k),
        f"{name}_spectrum": figures.spectrum_figure(found),
    }
    table = f"{_first(found, choices.k)}\n\n{_first(by_data, choices.k)}"
    return [Chapter(name, f"Singular vectors of {layer or 'the model'}", words, table, found.to_dict(), drawn)]


def first_layer(subject: LookedAt, choices: Choices) -> list[Chapter]:
    """How much the first layer's singular vectors resemble what it sees; of a convolution, those of the operator."""
    (first,) = inspect.activations(subject.model, subject.inputs, "d1")
    sections, size = [], tuple(first.tensor.shape[1:])
    if subject.plan[0].kind == "conv2d":
        whole = prod(size) <= OPERATOR
        if not whole:
            shrink = sqrt(OPERATOR / prod(size))
            size = (size[0], int(size[1] * shrink), int(size[2] * shrink))
        data = subject.inputs if whole else None
        found = inspect.singular_vectors(
            subject.model, first.layer, choices.k, data=data, operator=True, size=None if whole else size
        )
        words = f"The largest ones of the whole convolution, stride and padding included, on inputs of {_shape(size)}."
        drawn = {"operator": figures.vectors_figure(found, choices.k)}
        title = f"Singular vectors of the operator {first.layer or 'of the model'}"
        sections.append(Chapter("operator", title, words, str(found), found.to_dict(), drawn))
    else:
        found = _of_matrix(subject, first.layer, choices.k)
    if found.vectors.shape[1] == prod(first.tensor.shape[1:]):
        like = inspect.similarity(found, first.tensor, lpips=choices.lpips)
        words = (
            f"Of {len(found)} right singular vectors of {first.layer or 'the model'} to {len(first.tensor)} samples."
        )
        drawn = {"similarity": figures.similarity_figure(like)}
        sections.append(Chapter("similarity", "Similarity to the data", words, str(like), like.to_dict(), drawn))
    return sections


def reverse_pass(subject: LookedAt, choices: Choices) -> list[Chapter]:
    """What comes back when the network runs backwards, and how much of the input that gives away."""
    statistics: str | ReverseStatistics = choices.statistics
    if statistics == "calibrated":
        statistics = inspect.calibrate(subject.model, [subject.inputs], inputs=lambda given: given)
    back = inspect.invertibility(
        subject.model, subject.inputs, statistics=statistics, input_activation=choices.input_activation
    )
    leaks = inspect.leakage(subject.model, back)
    shown = back
    if subject.samples.picture is not None and back.inputs.dim() == 2:  # flattened pictures
        picture = subject.samples.picture
        rebuilt = {name: x.reshape(-1, *picture) for name, x in back.rebuilt.items()}
        shown = replace(back, inputs=back.inputs.reshape(-1, *picture), rebuilt=rebuilt)
    drawn = {"invertibility": figures.invertibility_figure(back)}
    if shown.pictures and shown.rebuilt:
        drawn["rebuilt"] = figures.rebuilt_figure(shown)
    words = "Relative error Σ(d − d')² / Σd² of the reverse pass into every d_m; 0 is perfect, 1 no better than zeros."
    if any(isinstance(module, AnyBatchNorm) for module in subject.model.modules()):
        words += f" {STATISTICS[choices.statistics]}"
    leak_figures = {"leakage": figures.leakage_figure(leaks)} if leaks.leaks else {}
    return [
        Chapter("invertibility", "The reverse pass", words, str(back), back.to_dict(), drawn, _came_back(back)),
        Chapter("leakage", "What the layers give away", "", str(leaks), leaks.to_dict(), leak_figures, leaks.reading),
    ]


def _came_back(back: Invertibility) -> str:
    """How well the input comes back from the deepest place from which the way is unique."""
    known = [depth for depth in back if depth.input is not None]
    if not known:
        return "There is no unique reverse pass to the input."
    last = known[-1]
    return f"The input comes back through {last.layer or 'the model'} with a relative error of {last.input:.3g}."


def information_plane(subject: LookedAt) -> list[Chapter]:
    """What every layer tells of input and label; needs labels."""
    labels, title = subject.samples.labels, "Information plane"
    if labels is None:
        return [Chapter("information_plane", title, "Left out: it needs labels, one folder per class or an array y.")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inspect.SaturationWarning)  # the table says so
        found = inspect.information_plane(subject.model, subject.inputs, labels)
    drawn = {"information_plane": figures.plane_figure(found)}
    words = (
        "Bits that the binned activations tell of the input and of the label. Saturated: every sample has a code of "
        "its own, so that the figure counts samples and measures nothing; more samples or fewer bins would help."
    )
    record = found.to_dict()
    if len(found) <= SWEPT:
        sweep = inspect.bin_sweep(subject.model, subject.inputs, labels)
        drawn["bin_sweep"] = figures.sweep_figure(sweep)
        record["sweep"] = {str(bins): one.to_dict() for bins, one in sweep.items()}
    return [Chapter("information_plane", title, words, str(found), record, drawn)]


def plasticity(subject: LookedAt) -> list[Chapter]:
    """Dead units, effective rank and gain along the data."""
    measured = inspect.plasticity(subject.model, subject.inputs)
    worst = max(measured, key=lambda one: one.dead)
    words = (
        "What shows whether it can still learn: units that hardly any sample wakes, the effective rank of the units, "
        "and by how much a layer lengthens the principal directions of its data, for a tenth, half and nine tenths of "
        "their energy (1 keeps lengths)."
    )
    finding = f"The largest share of dead units has {worst.layer or 'the model'}: {worst.dead:.0%}."
    return [Chapter("plasticity", "Plasticity", words, str(measured), measured.to_dict(), finding=finding)]


def _of_matrix(subject: LookedAt, layer: str, k: int) -> SingularVectors:
    """All right singular vectors of a layer, or the first k of a large one; as pictures where the layer sees them."""
    weight, picture = weight_of(subject.model, layer), subject.samples.picture
    flattened = picture is not None and weight.shape == (prod(picture),)
    return inspect.singular_vectors(
        subject.model,
        layer,
        None if min(weight.matrix.shape) <= ALL else k,
        data=subject.inputs,
        size=picture if flattened else None,
    )


def _first(found: SingularVectors, k: int) -> SingularVectors:
    carried: Tensor | None = None if found.carried is None else found.carried[:k]
    return replace(found, values=found.values[:k], vectors=found.vectors[:k], carried=carried)


def _file_name(layer: str) -> str:
    return re.sub(r"[^\w.-]", "_", layer) or "model"


def _shape(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))
