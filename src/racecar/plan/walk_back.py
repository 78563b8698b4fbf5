"""Find the way back from outputs of a model: value by value, from the last one to the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from racecar.errors import NotReversible
from racecar.plan.graph import Graph, Op
from racecar.plan.joins import Given, can_resolve, join_names, refusal, resolved
from racecar.plan.layer import Layer
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.parts import reversible
from racecar.plan.step import Action, Step
from racecar.plan.way_back import End, Leg, Stop, WayBack
from racecar.rules.activation import SOFTMAX
from racecar.rules.roles import Role
from racecar.watch.names import choose, shown


def way_back(
    layer_graph: LayerGraph,
    outputs: Sequence[int] | None = None,
    to: str | None = None,
    start: str | None = None,
    given: Mapping[str, Given] | None = None,
) -> WayBack:
    """The way back from outputs of a model; raises NotReversible where it is not unique.

    Args:
        layer_graph: the layers.
        outputs: the indices of the outputs that are followed; None: all.
        to: the layer at whose d the way ends; None: it ends at the input.
        start: the layer from whose output it starts; None: it starts from outputs of the model.
        given: name of a join → which of its tensors are given.
    """
    walk = _Walk(layer_graph, to, given or {})
    if start is not None:
        layer = layer_named(layer_graph, start, "start")
        return walk.run([(layer.out, f"output of {shown(layer.name)}")], (), whole=True)
    chosen = [output for i, output in enumerate(layer_graph.outputs) if outputs is None or i in outputs]
    blind = next((output.title for output in chosen if output.value is None), None)
    if blind is not None:
        raise NotReversible(f"{blind} does not depend on the model's input, as far as was watched")
    left_out = tuple(output.title for output in layer_graph.outputs if output not in chosen)
    return walk.run([(output.value, output.title) for output in chosen if output.value is not None], left_out)


def layer_named(layer_graph: LayerGraph, name: str, what: str) -> Layer:
    """The layer of this name; a ValueError that names the argument ``what`` if there is none, or more than one."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be the name of a layer, not {name!r:.80}")
    exact = [layer for layer in layer_graph.layers if name in (layer.name, shown(layer.name))]
    chosen = exact or [layer_graph.layers[i] for i in choose([name], [one.names for one in layer_graph.layers], what)]
    if len(chosen) > 1:
        names = ", ".join(repr(shown(layer.name)) for layer in chosen)
        raise ValueError(f"{what} {name!r} matches several layers, {names}: give one of them")
    return chosen[0]


class _Walk:
    """Finds a way back: takes the latest value that was reached, until none is left."""

    def __init__(self, layer_graph: LayerGraph, to: str | None, given: Mapping[str, Given]) -> None:
        self.layer_graph, self.graph, self.given = layer_graph, layer_graph.graph, given
        self.layers = {id(layer.op): layer for layer in layer_graph.layers}
        self.names = join_names(layer_graph)
        unknown = next((name for name in given if name not in self.names.values()), None)
        if unknown is not None:
            places = ", ".join(map(repr, self.names.values())) or "none"
            raise ValueError(f"given: {unknown!r} is no place where tensors are joined; these are: {places}")
        self.to = None if to is None else layer_named(layer_graph, to, "to")
        self.leading = None if self.to is None else _values_after(self.graph, self.to.op)
        """The values that lead to the layer where the way ends; None: all lead to the input."""
        self.reached: dict[int, list[Leg]] = {}
        self.ends: dict[int, list[Leg]] = {}
        self.stops: list[Stop] = []

    def run(self, starts: Sequence[tuple[int, str]], left_out: tuple[str, ...], whole: bool = False) -> WayBack:
        """The way from these starts, (value, name) each. ``whole``: they are d of a layer above."""
        legs = tuple((value, self._land(name, value, raw=not whole)) for value, name in starts)
        while self.reached:
            value = max(self.reached)
            arriving, op = tuple(self.reached.pop(value)), self.graph.maker[value]
            layer = self.layers.get(id(op))
            self.stops.append(self._join(op, value, arriving) if layer is None else self._layer(layer, value, arriving))
        if self.to is not None and all(stop.layer is not self.to for stop in self.stops):
            passed = [shown(stop.name) for stop in self.stops]
            where = f"it goes through {', '.join(map(repr, passed))}" if passed else "it starts below"
            raise ValueError(f"to: layer {shown(self.to.name)!r} is not on the way back, {where}")
        ends = tuple(End(value, tuple(self.ends[value])) for value in sorted(self.ends))
        return WayBack(legs, tuple(self.stops), ends, left_out)

    def _land(self, name: str, value: int, raw: bool) -> Leg:
        """Add the leg from a value down to the next layer, join or input.

        ``raw``: whether norms and activations above the value were not applied again, as at an output of the model.
        """
        chain, at = [], value
        while (op := self.graph.maker.get(at)) is not None and (op.role.passable or reversible(op)):
            chain.append(op)
            at = op.source
        leads = self.leading is None or at in self.leading
        leg = Leg(name, tuple(_undone(chain, raw)), at)
        if op is None or op.role is Role.SOURCE:
            if self.to is None:
                self.ends.setdefault(at, []).append(leg)
        elif leads and not (op.role.weighted or op.role is Role.JOIN):
            raise self._blocked(op)
        elif leads:
            self.reached.setdefault(at, []).append(leg)
        return leg

    def _layer(self, layer: Layer, value: int, arriving: tuple[Leg, ...]) -> Stop:
        """A layer on the way; adds the leg that leads on from its d."""
        if layer.problem:
            raise self._blocked(layer.op)
        name, bottom = shown(layer.name), layer.bottom
        if layer is self.to or (layer.below is None and (bottom is None or bottom.role is Role.SOURCE)):
            onward = Leg(name, (), layer.d)
            self.ends.setdefault(layer.d, []).append(onward)
        else:
            onward = self._land(name, layer.d, raw=False)
        return Stop(layer.name, layer.kind, value, arriving, layer, None, onward)

    def _join(self, op: Op, value: int, arriving: tuple[Leg, ...]) -> Stop:
        """A join on the way, of which all tensors but one are given; adds the leg that leads on from that one."""
        name = self.names.get(id(op), op.kind)
        if name not in self.given or not can_resolve(op):
            raise refusal(self.layer_graph, op, name, self.names)
        join = resolved(self.layer_graph, op, name, self.given[name], self.leading)
        return Stop(name, op.kind, value, arriving, None, join, self._land(name, join.op.source, raw=True))

    def _blocked(self, op: Op) -> NotReversible:
        """The error for an operation that no rule undoes."""
        return NotReversible(
            f"no rule leads back through {self.layer_graph.place(op)}: end above it with to='LAYER', begin below it "
            "with start='LAYER', or add a rule with @racecar.rules.register(...)"
        )


def _undone(chain: Sequence[Op], raw: bool) -> list[Step]:
    """The steps that undo operations between one place on the way and the next, given from the output to the input.

    Norms and activations are passed over, with the affine operations between them: what comes from above has their
    range already. At an output of the model a final softmax is passed over, too, and what follows the last norm or
    activation is undone.
    """
    ranges = [i for i, op in enumerate(chain) if op.role.sets_range and not (raw and op.kind in SOFTMAX)]
    first, last = (ranges[0] if raw else -1, ranges[-1]) if ranges else (-1, -1)
    return [
        Step(Action.UNDO, op)
        for i, op in enumerate(chain)
        if op.role.moves or (op.role is Role.AFFINE and not first <= i <= last)
    ]


def _values_after(graph: Graph, op: Op) -> set[int]:
    """The outputs of an operation and all values that depend on them."""
    after = set(op.outputs)
    for later in graph.ops:
        if any(value in after for _, value in later.inputs):
            after.update(later.outputs)
    return after
