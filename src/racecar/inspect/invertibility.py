"""How well a network can be run backwards: the error of the reverse pass, and the input that it rebuilds."""

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
"""Side of SSIM's Gaussian window, in pixels."""
NO_SSIM = f"no SSIM: its window of {WINDOW} × {WINDOW} pixels is larger than the pictures"


@dataclass(frozen=True)
class Depth:
    """Errors of the reverse pass at one layer m."""

    name: str
    """Name of the layer's input d_m: "d1", "d2", …"""
    layer: str
    """Qualified name of the layer."""
    kind: str
    """Kind of the layer's operation, as "conv2d"."""
    way: float | None
    """Relative error Σ(d_m − d'_m)² / Σd_m² of the reverse pass that starts at the output; None where it does not reach
    d_m."""
    layerwise: float | None
    """Relative error of d'_m rebuilt by this layer alone, from its forward output d_(m+1)."""
    input: float | None
    """Relative error of the model's input rebuilt from d_(m+1); None where the reverse pass to it is not unique."""
    psnr: float | None
    """PSNR of that rebuilt input in decibel, mean over the samples; None if they are not pictures."""
    ssim: float | None
    """SSIM of that rebuilt input, mean over the samples; None if they are not pictures, or too small ones."""
    note: str
    """Why a number is missing; "" if none is."""


@dataclass(frozen=True, eq=False)
class Invertibility:
    """Errors of the reverse pass at every layer of a model. Iterable over its layers; prints as a table."""

    mode: str
    """Mode of the reverse pass from the output: "full", or "auto" where joins or forks make it start again."""
    depths: tuple[Depth, ...]
    """One entry for each layer, in the order in which the layers run."""
    inputs: Tensor
    """The true input that the reverse pass should rebuild, (N, …): the model's, or the output of its embedding."""
    rebuilt: dict[str, Tensor]
    """"d(m+1)" → the input rebuilt from d(m+1), (N, …), for every depth from which the reverse pass is unique."""
    range: float
    """Largest minus smallest value of a pixel, which PSNR and SSIM are relative to."""

    def __iter__(self) -> Iterator[Depth]:
        return iter(self.depths)

    def __len__(self) -> int:
        return len(self.depths)

    @property
    def pictures(self) -> bool:
        """Whether the inputs are pictures (N, 1 or 3, H, W)."""
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
        """The numbers, without the tensors, as a dict for JSON."""
        return {"mode": self.mode, "range": self.range, "layers": [finite(asdict(depth)) for depth in self.depths]}


def invertibility(
    model: nn.Module,
    inputs: ExampleInputs,
    *,
    statistics: str | ReverseStatistics | None = None,
    input_activation: Any = None,
    range: float | None = None,
) -> Invertibility:
    """Run a model backwards on some inputs and measure how far the rebuilt activations are from the true ones.

    Args:
        model: any model that Racecar can plan, or a Racecar; nothing in it is changed.
        inputs: as for ``Racecar``: a tensor (N, …), a tuple of arguments or a dict of keyword arguments.
        statistics: what batch norms use. "batch": the statistics of these inputs, as in training. "running": the
            model's running ones in both passes, which are often far off in the reverse pass. The result of
            :func:`calibrate`: running ones in the forward pass, these in the reverse pass; right for a single sample,
            too. "reverse": the same with the ``reverse_statistics`` of a Racecar, which were measured in its own mode.
            None: "reverse" for a Racecar that has some, else "batch".
        input_activation: applied to the rebuilt input, as for ``Racecar``.
        range: largest minus smallest value that a pixel can have, for PSNR and SSIM; None: that of the inputs.

    Returns:
        For every layer three relative errors: of the reverse pass from the output, of the layer alone, and of the input
        rebuilt from the layer's output.
    """
    input_function = activation(input_activation)
    model, forward_statistics, reverse_statistics = model_and_statistics(model, statistics)
    with eval_mode(model, forward_statistics):  # the reverse pass, too: some rules ask a module whether it trains
        try:
            forward = ForwardPass(model, *call_arguments(inputs, model), reverse_statistics)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            remedy = "give more samples, statistics=calibrate(model, batches), or statistics='running'"
            raise ValueError(f"batch norm needs more than one value per channel: {remedy}") from error
        return _measure(forward, input_function, range)


def measured_plans(forward: ForwardPass) -> list[Plan]:
    """Plans of all reverse passes that ``invertibility`` runs: from the output, layer by layer, and from each depth to
    the input."""
    to_input = [_plan_to_input(forward, layer) for layer in forward.layers]
    return [_from_output(forward), forward.plan("layerwise"), *(plan for plan in to_input if isinstance(plan, Plan))]


def _measure(forward: ForwardPass, input_activation: Activation | None, range: float | None) -> Invertibility:
    from_output = _from_output(forward)
    chained = forward.rebuild(from_output, input_activation)
    layerwise = forward.rebuild(forward.plan("layerwise"), input_activation)
    inputs, depths, rebuilt = forward.value(forward.layers[0].d), [], {}
    span = _range(inputs, range)
    for layer in forward.layers:
        rebuilt_input, note = _rebuild_input(forward, layer, input_activation)
        scores: tuple[float | None, float | None] = (None, None)
        if rebuilt_input is not None:
            rebuilt[f"d{layer.index + 2}"] = rebuilt_input
            if is_pictures(inputs):
                scores = picture_scores(rebuilt_input, inputs, span)
        d = forward.value(layer.d)
        depths.append(
            Depth(
                f"d{layer.index + 1}",
                layer.name,
                layer.kind,
                relative_error(d, chained.get(layer.index)),
                relative_error(d, layerwise.get(layer.index)),
                relative_error(inputs, rebuilt_input),
                *scores,
                layer.problem or note,
            )
        )
    return Invertibility(from_output.mode, tuple(depths), inputs, rebuilt, span)


def _from_output(forward: ForwardPass) -> Plan:
    """The plan in mode "full", or in mode "auto" if the model has joins."""
    try:
        return forward.plan("full")
    except NotReversible:
        return forward.plan("auto")


def _rebuild_input(
    forward: ForwardPass, layer: Layer, input_activation: Activation | None
) -> tuple[Tensor | None, str]:
    """The input rebuilt from the layer's output d_(m+1), and ""; or None, and why it cannot be."""
    plan = _plan_to_input(forward, layer)
    if isinstance(plan, str):
        return None, plan
    rebuilt = forward.rebuild(plan, input_activation)
    return rebuilt[min(rebuilt)], ""


def _plan_to_input(forward: ForwardPass, layer: Layer) -> Plan | str:
    """The plan of the reverse pass from the layer's output d_(m+1) to the input, or why there is none."""
    if layer.problem:
        return layer.problem
    try:
        plan = forward.plan("input", layer)
    except NotReversible:
        return "no unique way to the input: a join lies between"
    last = layer
    while (below := last.below or last.beyond) is not None:
        last = below
        if last.problem:
            return f"no way to the input: {last.problem} in layer {shown(last.name)!r}"
    if last.d != forward.layers[0].d:
        return "the reverse pass ends above the first layer"
    return plan


def relative_error(d: Tensor, reverse: Tensor | None) -> float | None:
    """Σ(d − d')² / Σd² over all elements of d (N, …); 0 if d is all zeros, None if d' is None."""
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
    """Mean PSNR and SSIM of pictures a to pictures b, both (N, C, H, W); SSIM is None if its window does not fit.

    Args:
        a, b: the pictures.
        span: largest minus smallest value that a pixel can have.
    """
    fits = min(b.shape[2:]) >= WINDOW
    return float(psnr(a, b, span).mean()), float(ssim(a, b, span, WINDOW).mean()) if fits else None


def finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """``record`` as JSON can have it: None in place of infinity and NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


def number(value: float | None) -> str:
    """A number as text with three digits for a table; "-" for None."""
    return "-" if value is None else f"{value:.3g}"
