"""A plan together with the user's settings: everything about a step that can be decided before it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecar.errors import Unsupported
from racecar.plan.frozen import frozen, weight_parameters
from racecar.plan.graph import Op
from racecar.plan.layer import Layer
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.norms import Norm
from racecar.plan.plan import Plan
from racecar.plan.routes import make_plan
from racecar.reverse import terms, weights
from racecar.reverse.needs import needs_of
from racecar.reverse.norm_statistics import norms_by_key
from racecar.reverse.settings import Settings
from racecar.reverse.slicing import BatchSlice
from racecar.rules.roles import Role
from racecar.support.compiling import compiling
from racecar.support.precision import wide
from racecar.watch.names import shown


class Term(NamedTuple):
    """One term of the loss: what is compared for one constrained layer."""

    layer: Layer
    value: int
    """The number of the value that is compared: d_m, or in mode "linear" the operation's input."""
    weight: Tensor | None
    """λ if it is a tensor, which weighs the elements of d_m; None: λ is a number, which weighs the term."""
    norm: Op | None
    """The last norm before d_m, if d_m may be its rounding noise alone (:mod:`racecar.reverse.noise_floors`)."""


class PreparedPlan:
    """A plan together with the user's settings: everything about a step that can be decided before it.

    Args:
        layer_graph: the layers of the branch that the model took.
        settings: the user's.
        frozen_layers: for each layer whether it is frozen; None: find out.
    """

    def __init__(
        self, layer_graph: LayerGraph, settings: Settings, frozen_layers: Sequence[bool] | None = None
    ) -> None:
        self.layer_graph, self.settings = layer_graph, settings
        layers = layer_graph.layers
        self._layer_parameters = [weight_parameters(layer) for layer in layers]
        self.frozen = (
            frozen(self._layer_parameters, [False] * len(layers)) if frozen_layers is None else tuple(frozen_layers)
        )
        """For each layer whether it was frozen when this was prepared."""
        lambdas = weights.layer_weights(settings.weight, [layer.names for layer in layers])
        self.plan = self._make_plan(lambdas)
        """How each layer is reversed, with the reasons."""
        placed = [
            weights.placed(value, settings.times, layer.parameter) for value, layer in zip(lambdas, layers, strict=True)
        ]
        constrained = [(entry.layer, entry.d) for entry in self.plan if entry.constrained and entry.layer is not None]
        self.terms = {layer.index: self._term(layer, value, placed[layer.index]) for layer, value in constrained}
        """Layer index → term, in forward order."""
        self.names = tuple(layer.name for layer, _ in constrained)
        """The names of the constrained layers."""
        self.needs = needs_of([entry for entry in self.plan if entry.needed], settings.reach)
        """What the loss needs of a forward pass."""
        self.needs_to_rebuild = needs_of([entry for entry in self.plan if entry.passed])
        """What is needed to rebuild all d_m."""
        norm_inputs = [term.norm.source for term in self.terms.values() if term.norm is not None]
        needed = (*self.needs.values, *self.needs.whole, *self.needs_to_rebuild.values, *norm_inputs)
        self.in_place = sorted(set(needed) & layer_graph.in_place.values)
        """Values that are needed and that the model changes in place after they were computed."""
        unknown = [i for i in (*self.needs.values, *self.needs.shapes) if layer_graph.batch[i] is None]
        self.batch_unknown_at = layer_graph.around(unknown[0]) if unknown else ""
        """Where in the model the batch dimension cannot be followed, in words; "": nowhere."""
        share = len(constrained) if settings.reduction == "mean" else 1
        numbers = [placed[layer.index] for layer, _ in constrained]
        self._numbers = [(1.0 if isinstance(number, Tensor) else float(number)) / share for number in numbers]
        like = constrained[0][0].parameter if constrained else None
        self.move_lambdas(torch.zeros((), dtype=torch.float32) if like is None else like)

    def _make_plan(self, lambdas: Sequence[float | Tensor]) -> Plan:
        settings, names = self.settings, [layer.names for layer in self.layer_graph.layers]
        # The one term of mode "input" trains all layers on the way, so a frozen one is not left out.
        keep_frozen = settings.mode == "input" and not all(self.frozen)
        active = [
            not weights.is_zero(value) and (keep_frozen or not is_frozen)
            for value, is_frozen in zip(lambdas, self.frozen, strict=True)
        ]
        plan = make_plan(self.layer_graph, settings.mode, active, self.frozen, lambdas)
        return plan.with_heads(weights.chosen_as_head(settings.weight, names))

    def _term(self, layer: Layer, value: int, weight: float | Tensor) -> Term:
        if layer.layout is not torch.strided:
            raise Unsupported(
                f"layer {shown(layer.name)!r} reads a tensor of layout {layer.layout}, which the reverse pass "
                "cannot rebuild: give the model a dense one, x.to_dense(), or give that layer weight 0"
            )
        norms = [op for op in layer.redo if op.role is Role.NORM and not op.members]
        divides = self.settings.scale in terms.RELATIVE and self.settings.mode != "linear"
        return Term(
            layer, value, weight if isinstance(weight, Tensor) else None, norms[-1] if norms and divides else None
        )

    @property
    def norms(self) -> dict[str, Norm]:
        """Key → batch norm, for every place where the loss applies one."""
        return norms_by_key(self.needs.norms, self.layer_graph.norms)

    def move_lambdas(self, like: Tensor) -> None:
        """Put λ of the terms on the device of ``like``. They are a tensor, so that a schedule that changes them neither
        waits for the device nor recompiles."""
        with torch.inference_mode(False):  # so that training can use the tensor, too
            lambdas = torch.tensor(self._numbers, dtype=wide(like), pin_memory=like.is_cuda)
            self.lambdas = lambdas.to(like.device, non_blocking=True)

    def frozen_now(self) -> tuple[bool, ...]:
        """For each layer whether it is frozen now."""
        return frozen(self._layer_parameters, self.frozen)

    def slice_of(self, inputs: Sequence[Tensor]) -> BatchSlice:
        """The slice of the batch that the settings ask for; all of it, with a warning, if it cannot be cut off."""
        part = BatchSlice(*self.settings.slice_of(inputs))
        cannot_slice = part.samples < part.size and bool(self.batch_unknown_at)
        if not compiling():
            if cannot_slice:
                _warn_ignored(f"the batch dimension cannot be followed through {self.batch_unknown_at}")
            elif part.size == 1 and self.settings.fraction < 1 and any(x.shape[:1].numel() > 1 for x in inputs):
                _warn_ignored("the model's first argument, of one sample, is taken for the batch: give the batch first")
        return BatchSlice(part.size, part.size) if cannot_slice else part


def _warn_ignored(reason: str) -> None:
    warnings.warn(f"fraction is ignored: {reason}", UserWarning, stacklevel=6)
