"""From a graph of operations to layers d1 … d(n+1) and what stands between them.

For every weighted operation m the plan knows

* ``d``: the tensor d_m, after the last norm or activation below the operation, or what starts the way (the model's
  input, an embedding, a join);
* ``approach``: what stands between d_m and the operation (pooling, padding, shapes); it belongs to the layer;
* ``redo``: the norms and activations between the layer below and d_m, which the reverse pass re-applies;
* ``out``: the layer's own forward output d_(m+1), from which a layer-wise step starts;
* ``below``: the layer whose output leads to d_m, and whether that way is unique.
"""

from __future__ import annotations

from torch import nn

from racecar.plan import classify, composites, module_rules, sums
from racecar.plan.batch import batch_dims
from racecar.plan.causal import causal_cut
from racecar.plan.coverage import coverage
from racecar.plan.graph import Graph, Op
from racecar.plan.layer import Layer
from racecar.plan.match import Matcher
from racecar.plan.norms import batch_norms
from racecar.plan.parts import passable
from racecar.plan.slices import per_sample
from racecar.plan.step import Step, undo
from racecar.plan.step_order import into_d
from racecar.rules.activation import SOFTMAX
from racecar.rules.context import of_input
from racecar.rules.registry import Rules
from racecar.rules.roles import Role
from racecar.rules.torch_functions import RECURRENT
from racecar.watch.calls import gives_list
from racecar.watch.inputs import batch_size
from racecar.watch.links import Value
from racecar.watch.modules import ModuleWatch
from racecar.watch.trace import Trace


class LayerGraph:
    """The layers of one way through a model. Made from a trace; it holds no tensor of it.

    Args:
        rules: those that are stronger than the registered ones.
        modules: which module made which calls; None: rules for modules are not used.
    """

    def __init__(self, model: nn.Module, trace: Trace, rules: Rules, modules: ModuleWatch | None = None) -> None:
        self.graph: Graph = classify.build(trace, model, modules, rules)
        if modules is not None:
            module_rules.gather(self.graph, modules)
        sums.gather(self.graph)
        composites.gather(self.graph)
        self.ordinals = self.graph.positions
        self.layers = [Layer("", op) for op in self.graph.ops if op.role.weighted]
        for i, layer in enumerate(self.layers):
            layer.index = i
            if layer.op.role is Role.SKIPPED:
                several = " of several tensors" if len(layer.op.inputs) > 1 else ""
                layer.problem = f"no rule for {layer.op.kind}{several}"
        self._name()
        self._of_op = {id(layer.op): layer for layer in self.layers}
        self._leads_on = self._values_before_layers()
        for layer in self.layers:
            layer.end = self._end(layer)
            layer.head = self._leads_on.isdisjoint(layer.op.outputs)
        self._ends = {layer.end: layer for layer in self.layers}
        for layer in self.layers:
            self._descend(layer)
        for layer in self.layers:
            layer.into_d = tuple(into_d(self.graph, layer.op, layer.approach, layer.redo, layer.own_padding))
            below = layer.below
            if below is not None and layer.forked is None and not layer.problem and not below.problem:
                below.above = layer
        for layer in self.layers:
            layer.out = layer.above.d if layer.above is not None else self._ascend(layer)
            layer.onward = tuple(reversed(self._chain(layer, layer.out)))
        ordinal = {call: i for i, call in enumerate(trace.links)} | {-1: -1}
        self.values = [Value(ordinal[call], slot) for call, slot in trace.values]
        self.positions = [trace.position(value) for value in range(len(trace.values))]
        """Of each value, the call of the planned pass that made it, or −1 − i for input i."""
        self.batch_size = batch_size(trace.inputs)
        self.batch = batch_dims(self.graph, self.batch_size)
        for layer in self.layers:
            layer.shape, layer.h_shape = (self._sample_shape(trace, value) for value in (layer.d, layer.h))
            layer.layout = trace.tensor(layer.d).layout
        self.per_sample = per_sample(self.graph, self.batch, self.batch_size)
        """Operations, by ordinal, whose constants are cut with the samples."""
        self.match = Matcher(self.layers, self.ordinals, self.batch, self.batch_size, trace)
        self.changed = trace.changed_later()
        """Values that are changed in place after they were made."""
        for layer in self.layers:
            layer.stays = self.changed.isdisjoint(layer.op.outputs)
        self.norms = batch_norms(self.graph, modules)
        """The batch norms by their ordinal."""
        self.changes_input = any(self.values[value].call < 0 for value in self.changed)
        makers = [self.graph.maker[value] for value in sorted(self.changed) if value in self.graph.maker]
        self.changing = tuple({id(op.called): op.called for op in makers if op.called is not None}.values())
        """The functions that made them."""
        again = [op for layer in self.layers for one in layer.redo for op in one.members or (one,)]
        layers = [op for layer in self.layers for op in layer.op.members or (layer.op,)]
        made = [op.outputs[0] for op in (*again, *layers)]
        made += [op.source for op in self.graph.ops if op.rule is not None and op.rule.takes_mask is of_input]
        made += [op.outputs[0] for layer in self.layers for op in layer.onward]
        read = [value for layer in self.layers for value in (layer.d, layer.op.source, layer.h)]
        self.marked = tuple(dict.fromkeys([*made, *read]))
        """Values of which the reverse pass must know where they are padding: d_m, what layers read and what is made of
        that up to d_(m+1), what norms make, and what is summed."""
        self.leading = self.graph.mask_operations(self.marked)
        """The operations that these come from."""
        self.recurrent = any(op.called in RECURRENT for op in self.graph.ops)
        """Whether there are recurrent networks, which are taken apart."""
        self.lists = any(gives_list(call.args) for call in trace.calls)
        """Whether a call was given a list."""
        names = {layer.name for layer in self.layers}
        self.coverage = coverage(self.graph, model, modules, [layer.op for layer in self.layers], names, rules)
        """Which weights the layers use, and why no layer uses the others."""
        self.graph.forget()

    def _sample_shape(self, trace: Trace, value: int) -> tuple[int, ...]:
        """Of a value, without its batch dimension."""
        shape, where = trace.tensor(value).shape, self.batch[value]
        dim = 0 if where is None else where.dim
        return (*shape[:dim], *shape[dim + 1 :])

    def _name(self) -> None:
        """Qualified module names; ".weight" for modules with several weights, "#2" for later uses."""
        weights: dict[str, set[str]] = {}
        for layer in self.layers:
            assert layer.op.owner is not None
            weights.setdefault(layer.op.owner.name, set()).add(layer.op.owner.attribute)
        uses: dict[str, int] = {}
        for layer in self.layers:
            owner = layer.op.owner
            assert owner is not None
            name = owner.name
            if len(weights[owner.name]) > 1:
                name = f"{name}.{owner.attribute}" if name else owner.attribute
            uses[name] = uses.get(name, 0) + 1
            layer.name = name if uses[name] == 1 else f"{name}#{uses[name]}"

    def _values_before_layers(self) -> set[int]:
        """Values that some later layer depends on."""
        found: set[int] = set()
        for op in reversed(self.graph.ops):
            if op.role.weighted or any(value in found for value in op.outputs):
                found.update(value for _, value in op.inputs)
        return found

    def _next(self, value: int) -> Op | None:
        """The only operation that uses a value."""
        users = self.graph.users.get(value, [])
        return users[0] if len(users) == 1 else None

    def _end(self, layer: Layer) -> int:
        """Walk over shapes to a bias that is added after the operation (``x @ W + b``), or to a causal cut."""
        graph = self.graph
        end = value = layer.op.outputs[0]
        if layer.problem:
            return end
        cut = causal_cut(graph, layer.op, lambda op: op.bind(graph.call(op.ordinal)), graph.trace.tensor)
        if cut is not None:
            layer.cut = cut
            return cut.outputs[0]
        while (op := self._next(value)) is not None and op.role.passable:
            if op.role not in (Role.SHAPE, Role.PASS) and op.kind not in ("add", "sub"):
                break
            value = op.outputs[0]
            if op.role is Role.AFFINE:
                end = value
        return end

    def _descend(self, layer: Layer) -> None:
        """Walk back from the operation to the layer below, or to what starts the way."""
        value, chain, shaped = layer.op.source, list[Op](), False
        while True:
            users = self.graph.users[value]
            if len(users) > 1 and layer.forked is None:
                layer.forked = next(op for op in users if op is not (chain[-1] if chain else layer.op))
            if value in self._ends:
                layer.below = self._ends[value]
                break
            op = self.graph.maker.get(value)
            shaped = shaped or (bool(chain) and chain[-1].role.sets_range)
            if op is None or not (op.role.passable or (passable(op) and (shaped or self._of_input(op)))):
                layer.bottom = op
                layer.beyond = self._beyond(op)
                break
            chain.append(op)
            value = op.source
        module = layer.op.owner.module if layer.op.owner else None
        if chain and chain[0].kind == "pad" and getattr(module, "padding_mode", "zeros") != "zeros":
            layer.own_padding = chain[0]
        first = next((i for i, op in enumerate(chain) if op.role.sets_range), None)
        if first is None:
            layer.d, layer.approach = value, chain
        else:
            layer.d, layer.approach = chain[first].outputs[0], chain[:first]
            forward = chain[first:][::-1]
            start = next(i for i, op in enumerate(forward) if op.role.sets_range)
            layer.redo = [op for op in forward[start:] if op.role is not Role.PASS]

    def _of_input(self, op: Op) -> bool:
        """Whether a selection was made from the model's input itself."""
        made: Op | None = op
        while made is not None:
            if made.role.sets_range or not (made.role.passable or passable(made)):
                return False
            if made.source in self._ends:
                return False
            made = self.graph.maker.get(made.source)
        return True

    def _beyond(self, op: Op | None) -> Layer | None:
        """The layer that a selection of parts was made from."""
        if op is None or not passable(op):
            return None
        while op is not None and (op.role.passable or passable(op)):
            value = op.source
            if value in self._ends:
                return self._ends[value]
            op = self.graph.maker.get(value)
        return None

    def _ascend(self, layer: Layer) -> int:
        """Walk forward to the last norm or activation before a join, a fork, another layer or the end."""
        out = value = layer.end
        cut: int | None = None
        while (op := self._next(value)) is not None and (op.role.passable or passable(op)):
            last = op.kind in SOFTMAX and value not in self._leads_on
            cut = value if op.role is Role.SELECT and cut is None else cut
            value = op.outputs[0]
            if op.role.sets_range and not last:
                out, cut = value, None
        layer.stop = self._why_stop(value if cut is None else cut)
        return out

    def _why_stop(self, value: int) -> str:
        users = self.graph.users.get(value, [])
        if not users:
            return "the last layer"
        if len(users) > 1:
            return f"fork: {', '.join(sorted({self.label(op) for op in users}))}"
        (op,) = users
        if op.role is Role.JOIN:
            return f"join: {self.label(op)}"
        return f"before {self.label(op)}"

    def place(self, op: Op) -> str:
        """An operation and where it stands, for messages."""
        before = [layer.name for layer in self.layers if layer.op.ordinal < op.ordinal]
        return f"{op.kind!r}" + (f" after layer {before[-1]!r}" if before else "")

    def around(self, value: int) -> str:
        """Where a value stands, for messages."""
        maker = self.graph.maker.get(value)
        users = self.graph.users.get(value, [])
        return " and ".join(self.place(op) for op in (*([maker] if maker else []), *users[:1]))

    def label(self, op: Op) -> str:
        """An operation in words: its layer's name, or its kind."""
        layer = self._of_op.get(id(op))
        return layer.name if layer is not None and layer.name else op.kind

    def _chain(self, layer: Layer, value: int) -> list[Op]:
        """From ``value`` back to a layer's operation: what made it."""
        chain: list[Op] = []
        while value != layer.op.outputs[0]:
            chain.append(self.graph.maker[value])
            value = chain[-1].source
        return chain

    def between(self, layer: Layer, value: int) -> list[Step]:
        """What must be undone from ``value`` back to a layer's operation.

        Norms, activations and what is scaled after them are not undone: d' already has their range.
        """
        chain = self._chain(layer, value)
        shaped = [i for i, op in enumerate(chain) if op.role.sets_range]
        first = shaped[-1] if shaped else -1  # in forward order the first
        return [undo(op) for i, op in enumerate(chain) if op.role.moves or (op.role is Role.AFFINE and i > first)]
