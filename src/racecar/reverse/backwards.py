"""A model run backwards from any output, along a :class:`racecar.plan.way_back.WayBack`, without a forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from racecar.errors import NotReversible
from racecar.plan.entry import Entry
from racecar.plan.graph import Op
from racecar.plan.joins import Join
from racecar.plan.layer import Layer
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.step import Action, Step, take
from racecar.plan.way_back import Leg, WayBack
from racecar.reverse.input_activation import Activation
from racecar.reverse.norm_statistics import PassStatistics, norm_places
from racecar.reverse.other_batch import OtherBatch
from racecar.reverse.replay import Replay
from racecar.reverse.reverse import one_step
from racecar.reverse.slicing import BatchSlice
from racecar.reverse.tape import Tape
from racecar.reverse.way_arguments import GivenTensors, checked_given, chosen_outputs, find_way
from racecar.rules.fallback import by_adjoint, is_affine
from racecar.rules.operation import Operation
from racecar.rules.registry import Rule
from racecar.rules.roles import Role


def reverse(
    layer_graph: LayerGraph,
    y: Any,
    to: str | None = None,
    start: str | None = None,
    given: GivenTensors | None = None,
    input_activation: Activation | None = None,
    statistics: PassStatistics | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The input, or the d of a layer, to which the reverse pass leads from y; see :meth:`racecar.Racecar.reverse`."""
    given = checked_given(given)
    if start is None:
        tensors = chosen_outputs(layer_graph, y)
        way = find_way(layer_graph, tuple(tensors), to, None, given)
        ys = list(tensors.values())
    else:
        if not isinstance(y, Tensor) or not y.is_floating_point():
            raise TypeError(f"with start= y must be one floating-point tensor, not {type(y).__name__}")
        way, ys = find_way(layer_graph, None, to, start, given), [y]
    return _Run(layer_graph, way, ys, given, statistics).run(input_activation)


class _Run:
    """One reverse pass along a way."""

    def __init__(
        self,
        layer_graph: LayerGraph,
        way: WayBack,
        ys: Sequence[Tensor],
        given: Mapping[str, Any],
        statistics: PassStatistics | None,
    ) -> None:
        self.layer_graph, self.way, self.ys, self.given, self.statistics = layer_graph, way, ys, given, statistics
        self.replay = Replay(layer_graph, ys[0].device)
        self.batch = OtherBatch(layer_graph, way.starts[0][0], ys[0])
        samples = self.batch.samples
        shapes = {value: self.batch.shape(value) for value in way.values()}
        self.tape = Tape(BatchSlice(samples, samples), shapes, {}, {}, {})
        self.arrived: dict[int, list[tuple[Tensor, Tensor | None]]] = {}
        """Value → what has come to it so far, each with 1 where it is something and 0 where nothing was selected; None:
        1 everywhere."""

    def run(self, input_activation: Activation | None) -> Tensor | tuple[Tensor, ...]:
        """The tensor, or the tensors, to which the way leads."""
        for (value, leg), y in zip(self.way.starts, self.ys, strict=True):
            self.batch.check(value, y, leg.start)
            self._go(leg, y)
        for stop in self.way.stops:
            y = self._mean(stop.value)
            if stop.layer is not None:
                y = self._through_layer(stop.layer, y)
            if stop.join is not None:
                y = self._through_join(stop.join, y)
            self._go(stop.onward, y)
        results = []
        for end in self.way.ends:
            x = self._mean(end.value)
            is_input = self.layer_graph.values[end.value].call < 0
            results.append(input_activation(x) if is_input and input_activation is not None else x)
        return results[0] if len(results) == 1 else tuple(results)

    def _go(self, leg: Leg, y: Tensor) -> None:
        """Take y down a leg."""
        part: Tensor | None = None
        if leg.selects:
            part = torch.ones_like(y)
            for step in leg.steps:
                if step.op.role.moves:
                    part = take(step, part, self._operation(step.op), self.tape.shapes)
        for step in leg.steps:
            y = self._step(step, y, self._operation(step.op), leg.start)
        self.arrived.setdefault(leg.to, []).append((y, part))

    def _mean(self, value: int) -> Tensor:
        """The mean of all that has come to a value, element by element of what was not selected away."""
        arrived = self.arrived.pop(value)
        if len(arrived) == 1:
            return arrived[0][0]
        if all(part is None for _, part in arrived):
            return sum((y for y, _ in arrived[1:]), arrived[0][0]) / len(arrived)
        parts = [torch.ones_like(y) if part is None else (part != 0).to(y.dtype) for y, part in arrived]
        total = sum(y * part for (y, _), part in zip(arrived, parts, strict=True))
        mean: Tensor = total / sum(parts).clamp(min=1)  # type: ignore[union-attr]
        return mean

    def _through_layer(self, layer: Layer, y: Tensor) -> Tensor:
        """d' of a layer from its rebuilt output."""
        entry = Entry(layer.name, layer.kind, False, "reverse", "", layer, steps=layer.into_d)
        norms = norm_places([entry])
        for step in layer.into_d:
            operation, places = self._operation(step.op), norms.get((layer.index, step.op.ordinal))
            if self.statistics is not None and places is not None and step.action is Action.REDO:
                operation = self.statistics.attach(places, operation)
            y = self._step(step, y, operation, layer.name)
        return y

    def _through_join(self, join: Join, y: Tensor) -> Tensor:
        """The rebuilt tensor that a join leads on to."""
        tensors = self.given[join.name]
        several = isinstance(tensors, (tuple, list))
        if not several and len(join.given) > 1:
            raise ValueError(
                f"given[{join.name!r}]: {len(join.given) + 1} tensors are joined there: give a tuple with one entry "
                "for each of them, None for the one that the reverse pass goes on with"
            )
        present = [tensor for tensor in tensors if tensor is not None] if several else [tensors]
        for (_, value), tensor in zip(join.given, present, strict=True):
            self.batch.check(value, tensor, f"given[{join.name!r}]")
        places = [path for path, _ in join.given]
        operation = self._operation(join.op).filled(dict(zip(places, present, strict=True)))
        if join.op.rule.apply is None:
            join.op.rule = self._adjoint(join, operation, y)
        return self._step(Step(Action.UNDO, join.op), y, operation, join.name)

    def _adjoint(self, join: Join, operation: Operation, y: Tensor) -> Rule:
        """The general rule for a join that is affine in the tensor that is not given."""
        x = torch.zeros(self.tape.shapes[join.op.source], dtype=y.dtype, device=y.device)
        if not is_affine(operation, x):
            raise NotReversible(
                f"{join.name!r} is not linear in the tensor that is not given, so nothing leads back to it: end above "
                "it with to='LAYER', or begin below it with start='LAYER'"
            )
        return by_adjoint(Role.SHAPE, join.op.rule)

    def _step(self, step: Step, y: Tensor, operation: Operation, name: str) -> Tensor:
        """One step on y, at the place ``name``."""
        return one_step(step, y, self.tape, Entry(name, step.op.kind, False, "reverse", ""), operation)

    def _operation(self, op: Op) -> Operation:
        """An operation with the constants as they are now, for this batch."""
        operation = self.tape.operations.get(op.ordinal)
        if operation is None:
            operation = self.tape.operations[op.ordinal] = op.operation(self.replay.calls(op))
            self.batch.fit(op, operation)
        return operation
