"""The layers of one way through a model, and what the reverse pass must know of the forward pass beside them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from racecar.plan import classify, composites, module_rules, sums
from racecar.plan.batch import batch_dims
from racecar.plan.call_order import CallOrder
from racecar.plan.constants import Constants
from racecar.plan.coverage import coverage
from racecar.plan.graph import Graph, Op
from racecar.plan.layer import Layer
from racecar.plan.layers import find_layers
from racecar.plan.match import Matcher
from racecar.plan.norms import batch_norms
from racecar.plan.outputs import Output, outputs_of
from racecar.plan.slices import per_sample
from racecar.rules.context import of_input
from racecar.rules.registry import Rules
from racecar.rules.torch_functions import RECURRENT
from racecar.watch.calls import gives_list
from racecar.watch.inputs import batch_size
from racecar.watch.links import Value
from racecar.watch.modules import ModuleWatch
from racecar.watch.trace import Trace


class InPlaceChanges(NamedTuple):
    """The values that the model changes in place after they are made."""

    values: frozenset[int]
    functions: tuple[Any, ...]
    """The functions that make these values, without duplicates."""
    of_input: bool
    """Whether an input of the model is one of them."""


class MaskPaths(NamedTuple):
    """The values whose masks the reverse pass may need, and how the masks of the model's inputs are followed there."""

    values: tuple[int, ...]
    """Each d_m, the inputs of layers, the values between a layer and its d_(m+1), the outputs of norms that are applied
    again, and the inputs of sums."""
    operations: tuple[Op, ...]
    """The calls from the model's inputs to these values, in forward order."""


class LayerGraph:
    """The layers of one way through a model, made from a trace, of which it keeps no tensor.

    Args:
        model: the model.
        trace: one forward pass.
        rules: rules that come before the registered ones.
        modules: which module made which calls; None: rules for modules are not used.
        output: of the model in that pass.
    """

    def __init__(
        self, model: nn.Module, trace: Trace, rules: Rules, modules: ModuleWatch | None = None, output: Any = None
    ) -> None:
        self.graph = graph = _operations(model, trace, rules, modules)
        self.layers = find_layers(graph)
        ordinal = {call: i for i, call in enumerate(trace.links)} | {-1: -1}
        self.values = [Value(ordinal[call], slot) for call, slot in trace.values]
        """Where each value comes from: (ordinal of the call, index of the output), or (−1, index of the input)."""
        self.positions = [trace.position(value) for value in range(len(trace.values))]
        """For each value the position, among all calls, of the call that made it, or −1 − i for input i."""
        self.in_place = _in_place_changes(graph)
        size = batch_size(trace.inputs)
        self.batch_size = size
        """The number of samples in the planned pass."""
        self.shapes = [trace.tensor(value).shape for value in range(len(trace.values))]
        """The shape of each value in the planned pass."""
        self.outputs: tuple[Output, ...] = outputs_of(output, trace)
        """The outputs of the model."""
        self.constants = Constants(trace, model, modules)
        """The arguments of all calls that are no data, to make the calls again without a forward pass."""
        self.callers = _callers(model, trace, modules)
        """For each call that uses data the name of the module that made it."""
        self.batch = batch_dims(graph, size)
        """Where the samples run in each value."""
        self.per_sample = per_sample(graph, self.batch, size)
        """The ordinals of the operations whose constants are cut with the samples."""
        for layer in self.layers:
            layer.shape, layer.h_shape = (self._sample_shape(value) for value in (layer.d, layer.h))
            layer.layout = trace.tensor(layer.d).layout
            layer.stays = self.in_place.values.isdisjoint(layer.op.outputs)
        self.norms = batch_norms(graph, modules)
        """The batch norms, by ordinal."""
        self.masked = _mask_paths(graph, self.layers)
        weighted = [call for layer in self.layers for call in layer.op.single_calls]
        self.match = Matcher(weighted, self.batch, size, trace)
        """Recognises other passes that the layers are valid for."""
        self.call_order = CallOrder(trace, weighted)
        """Recognises such passes under torch.compile."""
        self.recurrent = any(op.called in RECURRENT for op in graph.ops)
        """Whether there are recurrent networks, whose steps are watched as calls of their own."""
        self.lists = any(gives_list(call.args) for call in trace.calls)
        """Whether a call has a list among its arguments."""
        names = {layer.name for layer in self.layers}
        self.coverage = coverage(graph, model, modules, [layer.op for layer in self.layers], names, rules)
        """Which weights the layers use, and why no layer uses the others."""
        self.ways: dict[Any, Any] = {}
        """The ways back that were asked for so far, by :func:`racecar.reverse.way_arguments.find_way`."""
        graph.forget()

    def _sample_shape(self, value: int) -> tuple[int, ...]:
        """The shape of a value in the planned pass, without its batch dimension."""
        shape, where = self.graph.trace.tensor(value).shape, self.batch[value]
        dim = 0 if where is None else where.dim
        return (*shape[:dim], *shape[dim + 1 :])

    def place(self, op: Op) -> str:
        """An operation and the last layer before it, in words for messages: "'add' after layer 'conv1'"."""
        before = [layer.name for layer in self.layers if layer.op.ordinal < op.ordinal]
        return f"{op.kind!r}" + (f" after layer {before[-1]!r}" if before else "")

    def around(self, value: int) -> str:
        """The operation that makes a value and the first one that uses it, in words for messages."""
        maker, users = self.graph.maker.get(value), self.graph.users.get(value, [])
        return " and ".join(self.place(op) for op in (*([maker] if maker else []), *users[:1]))


def _operations(model: nn.Module, trace: Trace, rules: Rules, modules: ModuleWatch | None) -> Graph:
    """The operations of a trace, with those combined that are one operation to the reverse pass."""
    graph = classify.build(trace, model, modules, rules)
    if modules is not None:
        module_rules.gather(graph, modules)
    sums.gather(graph)
    composites.gather(graph)
    return graph


def _callers(model: nn.Module, trace: Trace, modules: ModuleWatch | None) -> tuple[str, ...]:
    """For each call that uses data the name of the innermost module whose forward made it."""
    names = {module: name for name, module in model.named_modules()}
    callers = [None if modules is None else modules.caller(i) for i in trace.links]
    return tuple("" if module is None else names.get(module, "") for module in callers)


def _in_place_changes(graph: Graph) -> InPlaceChanges:
    values = frozenset(graph.trace.changed_later())
    makers = [graph.maker[value] for value in sorted(values) if value in graph.maker]
    functions = {id(op.called): op.called for op in makers if op.called is not None}
    return InPlaceChanges(
        values, tuple(functions.values()), any(graph.trace.values[value].call < 0 for value in values)
    )


def _mask_paths(graph: Graph, layers: list[Layer]) -> MaskPaths:
    outputs = [call for layer in layers for op in (*layer.redo, layer.op) for call in op.single_calls]
    outputs += [op for layer in layers for op in layer.onward]
    values = [op.outputs[0] for op in outputs]
    values += [op.source for op in graph.ops if op.rule.takes_mask is of_input]
    values += [value for layer in layers for value in (layer.d, layer.op.source, layer.h)]
    return MaskPaths(tuple(dict.fromkeys(values)), tuple(graph.mask_operations(values)))
