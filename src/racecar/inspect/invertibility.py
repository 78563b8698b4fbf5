"""How well a network can be run backwards: the error of the reverse pass, and what it makes of the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from racecar.errors import NotReversible
from racecar.inspect.ssim import psnr, ssim
from racecar.inspect.unwrap import model_and_statistics
from racecar.plan.layer import Layer
from racecar.plan.plan import Plan
from racecar.racecar import call_arguments
from racecar.reverse.forward_pass import ForwardPass
from racecar.reverse.input_activation import Activation, activation
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.support.eval_mode import eval_mode
from racecar.support.table import table
from racecar.watch.batches import ExampleInputs
from racecar.watch.names import shown

WINDOW = 11
"""Of SSIM, in pixels."""
NO_SSIM = f"no SSIM: its window of {WINDOW} × {WINDOW} pixels is larger than the pictures"


@dataclass(frozen=True)
class Depth:
    """The reverse pass at one layer m."""

    name: str
    """"d1", "d2", …"""
    layer: str
    kind: str
    way: float | None
    """Σ(d_m − d'_m)² / Σd_m² of the one reverse pass from the output; None where it does not pass."""
    layerwise: float | None
    """The same from the layer's own forward output d_(m+1)."""
    input: float | None
    """The same for the model's input, rebuilt from d_(m+1); None where the way there is not unique."""
    psnr: float | None
    """Of the rebuilt input, for pictures, in decibel; mean over the inputs."""
    ssim: float | None
    note: str


@dataclass(frozen=True, eq=False)
class Invertibility:
    """How well a model can be run backwards on some inputs. Iterable over its layers; printable as a table."""

    mode: str
    """"full", or "auto" where joins or forks make the reverse pass start again."""
    depths: tuple[Depth, ...]
    inputs: Tensor
    """What the reverse pass should end in: the model's input, (N, …), or the output of its embedding."""
    rebuilt: dict[str, Tensor]
    """"d(m+1)" → the input rebuilt from there, (N, …), for every depth from which the way is unique."""
    range: float
    """Largest minus smallest value of a picture, which PSNR and SSIM are relative to."""

    def __iter__(self) -> Iterator[Depth]:
        return iter(self.depths)

    def __len__(self) -> int:
        return len(self.depths)

    @property
    def pictures(self) -> bool:
        return is_pictures(self.inputs)

    def __str__(self) -> str:
        head = ["", "layer", "kind", self.mode, "layer-wise", "input from here", "note"]
        rows = [
            [d.name, shown(d.layer), d.kind, number(d.way), number(d.layerwise), number(d.input), d.note]
            for d in self.depths
        ]
        if self.pictures:
            head[6:6] = ["PSNR", "SSIM"]
            for row, d in zip(rows, self.depths, strict=True):
                row[6:6] = [number(d.psnr), number(d.ssim)]
        small = self.pictures and min(self.inputs.shape[2:]) < WINDOW
        return table(head, rows) + (f"\n{NO_SSIM}" if small else "")

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {"mode": self.mode, "range": self.range, "layers": [finite(asdict(depth)) for depth in self.depths]}


def invertibility(
    model: nn.Module,
    inputs: ExampleInputs,
    *,
    statistics: str | ReverseStatistics | None = None,
    input_activation: Any = None,
    range: float | None = None,
) -> Invertibility:
    """Run a model backwards on some inputs and measure what comes back.

    Args:
        model: any model that Racecar can plan, or a Racecar; nothing in it is changed.
        inputs: as for ``Racecar``: a tensor (N, …), a tuple of arguments or a dict of keyword arguments.
        statistics: what batch norm uses: those of the "batch", as the reverse pass does in training; the model's own
            "running" ones, which are often far off in reverse; or its running ones in the forward pass and reverse
            statistics in the reverse pass, which hold for a single sample, too: of :func:`calibrate`, or "reverse" for
            those of a Racecar, which are of its own way and serve for all. None: "reverse" for a Racecar that has some,
            else "batch".
        input_activation: applied to the rebuilt input, as for ``Racecar``.
        range: of the pixels, for PSNR and SSIM; largest minus smallest value of the inputs if None.

    Returns:
        For every layer the relative error of the reverse pass, of the layer alone, and of the input rebuilt from it.
    """
    finish = activation(input_activation)
    model, used, known = model_and_statistics(model, statistics)
    with eval_mode(model, used):  # the reverse pass, too: some rules ask a module whether it trains
        try:
            forward = ForwardPass(model, *call_arguments(inputs, model), known)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            remedy = "give more samples, statistics=calibrate(model, batches), or statistics='running'"
            raise ValueError(f"batch norm needs more than one value per channel: {remedy}") from error
        return _measure(forward, finish, range)


def ways(forward: ForwardPass) -> list[Plan]:
    """Every reverse pass that is measured: the longest one, layer by layer, and to the input from each depth."""
    inputs = [_way_to_input(forward, layer) for layer in forward.layers]
    return [_longest(forward), forward.plan("layerwise"), *(way for way in inputs if not isinstance(way, str))]


def _measure(forward: ForwardPass, finish: Activation | None, range: float | None) -> Invertibility:
    way, alone = _longest(forward), forward.plan("layerwise")
    along, single = forward.rebuild(way, finish), forward.rebuild(alone, finish)
    start, depths, rebuilt = forward.value(forward.layers[0].d), [], {}
    span = _range(start, range)
    for layer in forward.layers:
        back, note = _input_from(forward, layer, finish)
        scores: tuple[float | None, float | None] = (None, None)
        if back is not None:
            rebuilt[f"d{layer.index + 2}"] = back
            if is_pictures(start):
                scores = picture_scores(back, start, span)
        d = forward.value(layer.d)
        depths.append(
            Depth(
                f"d{layer.index + 1}",
                layer.name,
                layer.kind,
                relative_error(d, along.get(layer.index)),
                relative_error(d, single.get(layer.index)),
                relative_error(start, back),
                *scores,
                layer.problem or note,
            )
        )
    return Invertibility(way.mode, tuple(depths), start, rebuilt, span)


def _longest(forward: ForwardPass) -> Plan:
    try:
        return forward.plan("full")
    except NotReversible:
        return forward.plan("auto")


def _input_from(forward: ForwardPass, layer: Layer, finish: Activation | None) -> tuple[Tensor | None, str]:
    """The first d rebuilt from d_(m+1), or why it cannot be."""
    way = _way_to_input(forward, layer)
    if isinstance(way, str):
        return None, way
    rebuilt = forward.rebuild(way, finish)
    return rebuilt[min(rebuilt)], ""


def _way_to_input(forward: ForwardPass, layer: Layer) -> Plan | str:
    """The way from d_(m+1) to the first d, or why there is none."""
    if layer.problem:
        return layer.problem
    try:
        way = forward.plan("input", layer)
    except NotReversible:
        return "no unique way to the input: a join lies between"
    end = layer
    while (below := end.below or end.beyond) is not None:
        end = below
        if end.problem:
            return f"no way to the input: {end.problem} in layer {shown(end.name)!r}"
    if end.d != forward.layers[0].d:
        return "the reverse pass ends above the first layer"
    return way


def relative_error(d: Tensor, reverse: Tensor | None) -> float | None:
    """Σ(d − d')² / Σd²; 0 for a d of zeros only."""
    if reverse is None:
        return None
    d, reverse = d.double(), reverse.double()
    total = float(d.square().sum())
    return float((d - reverse).square().sum()) / total if total else 0.0


def is_pictures(x: Tensor) -> bool:
    """Whether a batch holds pictures: (N, 1 or 3 channels, H, W)."""
    return x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) > 1


def _range(x: Tensor, given: float | None) -> float:
    if given is not None:
        if not given > 0:
            raise ValueError(f"range must be greater than 0, not {given!r}")
        return float(given)
    span = float(x.max() - x.min())
    return span if span > 0 else 1.0


def picture_scores(a: Tensor, b: Tensor, span: float) -> tuple[float, float | None]:
    """Mean PSNR and SSIM of pictures; SSIM is None where its window does not fit."""
    fits = min(b.shape[2:]) >= WINDOW
    return float(psnr(a, b, span).mean()), float(ssim(a, b, span, WINDOW).mean()) if fits else None


def finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows neither infinity nor NaN: None stands for them."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


def number(value: float | None) -> str:
    """A number for people; a dash where there is none."""
    return "-" if value is None else f"{value:.3g}"
