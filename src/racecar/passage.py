"""One forward pass through a model, kept whole: every d_m, and the way back from any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from racecar import reverse
from racecar.batch import batch_size
from racecar.engine import Engine
from racecar.guards import check_model
from racecar.plan import Layer
from racecar.planning import input_tensors, untouched, watch_forward
from racecar.route import Route, route
from racecar.rules.registry import Operation
from racecar.settings import Activation, Settings


class Passage:
    """A forward pass without gradient that leaves no trace in the model, and what it passed.

    Args:
        model: any model that has a plan.
        args, kwargs: the arguments of the call.
    """

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> None:
        check_model(model)
        kwargs = kwargs or {}
        engine = Engine(model, Settings(mode="layerwise"))
        if batch_size(input_tensors(args, kwargs)) == 0:
            raise ValueError("the inputs hold no samples: their batch is empty")
        engine.start(args, kwargs)
        plan = engine.ways[0].plan
        engine.keep |= frozenset(plan.position(value) for value in plan.changed)  # all that may be looked at
        with torch.no_grad(), untouched(model):
            if plan.changes_input:
                args, kwargs = _pytree.tree_map_only(Tensor, torch.clone, (tuple(args), dict(kwargs)))
            self.output, trace = watch_forward(model, args, kwargs, engine.keep)
            way, trace = engine.way(trace, args, kwargs, whole=True)
        self.plan = way.plan
        self.calls = [trace.calls[i] for i in trace.links]
        self.inputs = trace.kept_inputs
        self._finder = reverse.Finder(self.plan, self.calls, self.inputs)

    @property
    def layers(self) -> list[Layer]:
        return self.plan.layers

    def value(self, value: int) -> Tensor:
        """The tensor of a value of the plan, such as ``layer.d`` or ``layer.out``."""
        return self._finder.tensor(value).detach()

    def operation(self, layer: Layer) -> Operation:
        """A layer's operation with the arguments of this pass."""
        return layer.op.operation(self.calls, layer.name)

    def route(self, mode: str, last: Layer | None = None) -> Route:
        """The way back from layer ``last`` (the last one if None) or, layer by layer, from every layer."""
        active = [last is None or layer.index <= last.index for layer in self.layers]
        return route(self.plan, mode, active)

    @torch.no_grad()
    def rebuild(self, way: Route, input_activation: Activation | None = None) -> dict[int, Tensor]:
        """d'_m by layer index, wherever the way back passes."""
        needs = reverse.Needs([entry for entry in way if entry.passed])
        size = batch_size(self.inputs)
        tape = reverse.record(needs, self._finder, size, size)
        return reverse.run(needs, tape, input_activation)
