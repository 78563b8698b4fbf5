"""The chapters of the report of ``racecar inspect``: one function for each measurement."""

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
"""Number of singular vectors up to which all of a layer's are computed; of a larger layer the first k are."""
OPERATOR = 3 * 64 * 64
"""Largest input size on which the singular vectors of a whole convolution are computed: seconds, not minutes."""
SWEPT = 12
"""Most layers that can be told apart in the figure over the number of bins; with more it is left out."""


STATISTICS = {
    "calibrated": "Batch norm has its running statistics, and in reverse those of the reverse data, calibrated on "
    "these samples.",
    "batch": "Batch norm has the statistics of these samples, both ways.",
    "running": "Batch norm has its running statistics both ways; those are of forward data, and can be far off on the "
    "reverse pass.",
}
"""Value of ``--statistics`` → sentence in report.md that says what batch norm uses."""


@dataclass(frozen=True)
class Choices:
    """The user's options for the measurements."""

    k: int
    """Number of singular vectors to show."""
    statistics: str
    """Statistics that batch norms use: a key of ``STATISTICS``."""
    input_activation: str | None
    """Function that is applied to the rebuilt input; None: none."""
    lpips: Lpips | None
    """Perceptual distance to compare pictures by; None: none."""


def looks(subject: LookedAt, choices: Choices) -> dict[str, Callable[[], list[Chapter]]]:
    """All measurements, in order: title for the progress bar → function that returns the chapters."""
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
    """The chapter on the plan: how the reverse pass treats every layer."""
    fields = ("name", "kind", "constrained", "source", "reason")
    record = [{name: getattr(entry, name) for name in fields} for entry in subject.plan]
    count = sum(entry.constrained for entry in subject.plan)
    finding = f"{count} of {len(record)} layers can be constrained."
    return [Chapter("plan", "Plan", table=str(subject.plan), record=record, finding=finding)]


def singular_vectors(subject: LookedAt, layer: str, choices: Choices) -> list[Chapter]:
    """The chapter on a layer's right singular vectors, sorted by value and by the share of the samples along each."""
    by_value = _of_matrix(subject, layer, choices.k)
    by_data = by_value.ordered("data")
    name = f"singular_vectors_{_file_name(layer)}"
    words = (
        "What the layer looks for. Racecar training drives them to the features of the data at singular values near 1, "
        "which need not be the largest; so they are sorted by value, and by the share of the samples that they carry."
    )
    drawn = {
        f"{name}_by_value": figures.vectors_figure(by_value, choices.k),
        f"{name}_by_data": figures.vectors_figure(by_data, choices.k),
        f"{name}_spectrum": figures.spectrum_figure(by_value),
    }
    table = f"{_first(by_value, choices.k)}\n\n{_first(by_data, choices.k)}"
    return [Chapter(name, f"Singular vectors of {layer or 'the model'}", words, table, by_value.to_dict(), drawn)]


def first_layer(subject: LookedAt, choices: Choices) -> list[Chapter]:
    """Chapters on the first layer: singular vectors of its operator if it is a convolution, and their similarity to the
    data."""
    (first,) = inspect.activations(subject.model, subject.inputs, "d1")
    sections, size = [], tuple(first.tensor.shape[1:])
    if subject.plan[0].kind == "conv2d":
        whole = prod(size) <= OPERATOR
        if not whole:
            shrink = sqrt(OPERATOR / prod(size))
            size = (size[0], int(size[1] * shrink), int(size[2] * shrink))
        data = subject.inputs if whole else None
        vectors = inspect.singular_vectors(
            subject.model, first.layer, choices.k, data=data, operator=True, size=None if whole else size
        )
        words = f"The largest ones of the whole convolution, stride and padding included, on inputs of {_shape(size)}."
        drawn = {"operator": figures.vectors_figure(vectors, choices.k)}
        title = f"Singular vectors of the operator {first.layer or 'of the model'}"
        sections.append(Chapter("operator", title, words, str(vectors), vectors.to_dict(), drawn))
    else:
        vectors = _of_matrix(subject, first.layer, choices.k)
    if vectors.vectors.shape[1] == prod(first.tensor.shape[1:]):
        alike = inspect.similarity(vectors, first.tensor, lpips=choices.lpips)
        words = (
            f"Of {len(vectors)} right singular vectors of {first.layer or 'the model'} to {len(first.tensor)} samples."
        )
        drawn = {"similarity": figures.similarity_figure(alike)}
        sections.append(Chapter("similarity", "Similarity to the data", words, str(alike), alike.to_dict(), drawn))
    return sections


def reverse_pass(subject: LookedAt, choices: Choices) -> list[Chapter]:
    """Chapters on the reverse pass: its errors, and how much of the input the activations reveal."""
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
    """A sentence on the input rebuilt from the deepest layer from which the reverse pass is unique."""
    known = [depth for depth in back if depth.input is not None]
    if not known:
        return "There is no unique reverse pass to the input."
    last = known[-1]
    return f"The input comes back through {last.layer or 'the model'} with a relative error of {last.input:.3g}."


def information_plane(subject: LookedAt) -> list[Chapter]:
    """The chapter on the information plane; it says that labels are missing if there are none."""
    labels, title = subject.samples.labels, "Information plane"
    if labels is None:
        return [Chapter("information_plane", title, "Left out: it needs labels, one folder per class or an array y.")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", inspect.SaturationWarning)  # the table says so
        plane = inspect.information_plane(subject.model, subject.inputs, labels)
    drawn = {"information_plane": figures.plane_figure(plane)}
    words = (
        "Bits that the binned activations tell of the input and of the label. Saturated: every sample has a code of "
        "its own, so that the figure counts samples and measures nothing; more samples or fewer bins would help."
    )
    record = plane.to_dict()
    if len(plane) <= SWEPT:
        sweep = inspect.bin_sweep(subject.model, subject.inputs, labels)
        drawn["bin_sweep"] = figures.sweep_figure(sweep)
        record["sweep"] = {str(bins): swept.to_dict() for bins, swept in sweep.items()}
    return [Chapter("information_plane", title, words, str(plane), record, drawn)]


def plasticity(subject: LookedAt) -> list[Chapter]:
    """The chapter on plasticity: dead units, effective rank and gain along the data of every layer."""
    measured = inspect.plasticity(subject.model, subject.inputs)
    worst = max(measured, key=lambda layer: layer.dead)
    words = (
        "What shows whether it can still learn: units that hardly any sample wakes, the effective rank of the units, "
        "and by how much a layer lengthens the principal directions of its data, for a tenth, half and nine tenths of "
        "their energy (1 keeps lengths)."
    )
    finding = f"The largest share of dead units has {worst.layer or 'the model'}: {worst.dead:.0%}."
    return [Chapter("plasticity", "Plasticity", words, str(measured), measured.to_dict(), finding=finding)]


def _of_matrix(subject: LookedAt, layer: str, k: int) -> SingularVectors:
    """All right singular vectors of a layer, or the first k of a large one; as pictures if its inputs are pictures."""
    weight, picture = weight_of(subject.model, layer), subject.samples.picture
    flattened = picture is not None and weight.shape == (prod(picture),)
    return inspect.singular_vectors(
        subject.model,
        layer,
        None if min(weight.matrix.shape) <= ALL else k,
        data=subject.inputs,
        size=picture if flattened else None,
    )


def _first(vectors: SingularVectors, k: int) -> SingularVectors:
    """The first k vectors."""
    carried: Tensor | None = None if vectors.carried is None else vectors.carried[:k]
    return replace(vectors, values=vectors.values[:k], vectors=vectors.vectors[:k], carried=carried)


def _file_name(layer: str) -> str:
    return re.sub(r"[^\w.-]", "_", layer) or "model"


def _shape(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))
