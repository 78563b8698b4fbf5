"""The calls of a planned pass made again on other data: with the weights as they are now, without a forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from racecar.errors import NotReversible
from racecar.plan.constants import Computed, Held, Like, Origin, Outside, TrainingFlag, Unknown
from racecar.plan.graph import Op
from racecar.plan.layer_graph import LayerGraph
from racecar.support.torch_private import own_buffers, own_parameters
from racecar.watch.calls import Call, outputs


class Replay:
    """The calls of a planned pass, with the constants as they are now and None in place of data.

    Args:
        layer_graph: of the pass.
        device: of the data; the model may have been moved since it was planned.
    """

    def __init__(self, layer_graph: LayerGraph, device: torch.device) -> None:
        self.layer_graph, self.device = layer_graph, device
        self._positions = layer_graph.graph.positions
        self._results: dict[int, tuple[Tensor, ...]] = {}
        """Position of a call that uses no data → what it gives now."""

    def calls(self, op: Op) -> list[Call | None]:
        """The calls by their ordinal, as far as an operation needs them: the others are None."""
        calls: list[Call | None] = [None] * len(self._positions)
        for single in op.single_calls:
            if single.module is None and single.func is not None:
                if single.lookup is not None:
                    raise self._unknown(op, "is chosen by the data")
                calls[single.ordinal] = self._call(self._positions[single.ordinal], op)
        return calls

    def _call(self, position: int, op: Op) -> Call:
        call = self.layer_graph.constants.of_call[position]
        kwargs = {name: self._value(value, op) for name, value in call.kwargs.items()}
        return call._replace(args=tuple([self._value(value, op) for value in call.args]), kwargs=kwargs)

    def _value(self, value: Any, op: Op) -> Any:
        if isinstance(value, Origin):
            return self._find(value, op)
        if type(value) in (tuple, list):
            return type(value)([self._value(part, op) for part in value])
        return value

    def _find(self, origin: Origin, op: Op) -> Any:
        """The tensor, or flag, that an origin stands for now."""
        value: Any = None
        if isinstance(origin, Held):
            value = own_parameters(origin.module).get(origin.name)
            value = own_buffers(origin.module).get(origin.name) if value is None else value
        elif isinstance(origin, Computed):
            value = self._computed(origin.call, op)[origin.slot]
        elif isinstance(origin, Outside):
            value = origin.tensor()
        elif isinstance(origin, Like):
            value = torch.empty(origin.shape, dtype=origin.dtype, device=self.device)
        elif isinstance(origin, TrainingFlag):
            value = origin.module.training
        if value is None:
            reason = origin.reason if isinstance(origin, Unknown) else "is known in a forward pass alone"
            raise self._unknown(op, reason)
        return value

    def _computed(self, position: int, op: Op) -> tuple[Tensor, ...]:
        """Results of a call that uses no data, computed again with the weights of now."""
        if position not in self._results:
            call = self._call(position, op)
            if call.kwargs.get("device") is not None:
                call.kwargs["device"] = self.device
            with torch.set_grad_enabled(call.grad and torch.is_grad_enabled()):
                self._results[position] = outputs(call._replace(out=call.func(*call.args, **call.kwargs)))
        return self._results[position]

    def _unknown(self, op: Op, reason: str) -> NotReversible:
        return NotReversible(
            f"a tensor in {self.layer_graph.place(op)} {reason}, so it cannot be undone without a forward pass: end "
            "above it with to='LAYER', or begin below it with start='LAYER'"
        )
