"""The joins of a model by name, and what a join is once all tensors but one that it joins are given."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from racecar.errors import NotReversible
from racecar.plan.graph import Graph, Op
from racecar.plan.layer_graph import LayerGraph
from racecar.rules.operation import FIRST, Operation, Path
from racecar.rules.registry import NO_RULE, Rule
from racecar.rules.roles import Role
from racecar.rules.torch_functions import RECURRENT
from racecar.watch.names import shown

Given = tuple[bool, ...] | None
"""Which of the tensors of a join are given, in the order of its arguments; None: all but the one that is followed."""


@dataclass(frozen=True, eq=False)
class Join:
    """A join of which all tensors but one are given."""

    name: str
    op: Op
    """The operation as one of the tensor that is not given. Its rule has no function where only a trial can tell
    whether it is affine in that tensor."""
    given: tuple[tuple[Path, int], ...]
    """The tensors that are given: (place among the arguments, value)."""


def join_names(layer_graph: LayerGraph) -> dict[int, str]:
    """id of each join → its name: the module that makes the call and the kind of operation, as "layer1.0.add"."""
    uses, names = Counter[str](), {}
    for op in layer_graph.graph.ops:
        if op.role is Role.JOIN:
            caller, kind = layer_graph.callers[op.ordinal], op.rule.kind or op.kind
            name = f"{caller}.{kind}".lstrip(".")
            uses[name] += 1
            names[id(op)] = name if uses[name] == 1 else f"{name}#{uses[name]}"
    return names


def resolved(layer_graph: LayerGraph, op: Op, name: str, given: Given, leading: set[int] | None) -> Join:
    """A join of which all tensors but one are given.

    Args:
        op: the join.
        given: which tensors are given.
        leading: the values that lead to where the way back ends; None: all.
    """
    if given is None:
        followed = _followed(layer_graph, op, leading)
    else:
        if len(given) != len(op.inputs) or sum(given) != len(op.inputs) - 1:
            raise ValueError(
                f"given[{name!r}]: a tuple must have {len(op.inputs)} entries, one for each tensor that is joined, and "
                "None for the one that the reverse pass goes on with"
            )
        followed = given.index(False)
    path, value = op.inputs[followed]
    others = tuple(one for i, one in enumerate(op.inputs) if i != followed)
    rule = _rule(op, path) or replace(NO_RULE, kind=op.kind)
    single = replace(op, role=Role.SHAPE, kind=op.kind, rule=rule, inputs=((path, value),))
    return Join(name, single, others)


def can_resolve(op: Op) -> bool:
    """True if a join is a single call on several tensors, so that it is a function of each alone if the others are
    given."""
    values = [value for _, value in op.inputs]
    single = op.func is not None and op.module is None and not op.members and op.called not in RECURRENT
    return single and len(values) == len(set(values)) > 1


def refusal(layer_graph: LayerGraph, op: Op, name: str, names: dict[int, str]) -> NotReversible:
    """The error for a join at which nothing is given: it names the place, and what would supply what is missing."""
    joined = " and ".join(_described(layer_graph, value, names) for _, value in op.inputs)
    place = f"the way back is not unique at {name!r}, which joins {joined}"
    around = "end above it with to='LAYER' or begin below it with start='LAYER'"
    if not can_resolve(op):
        return NotReversible(f"{place}, and no rule leads back through it: {around}")
    followed = _followed(layer_graph, op, None)
    shapes = [
        "None" if i == followed else f"tensor of shape {shape_in_words(layer_graph, value)}"
        for i, (_, value) in enumerate(op.inputs)
    ]
    missing = [i for i in range(len(shapes)) if i != followed]
    what = " and ".join(_described(layer_graph, op.inputs[i][1], names) for i in missing)
    argument = shapes[missing[0]] if len(missing) == 1 else f"({', '.join(shapes)})"
    return NotReversible(f"{place}: give {what} as given={{{name!r}: {argument}}}, or {around}")


def _followed(layer_graph: LayerGraph, op: Op, leading: set[int] | None) -> int:
    """Which tensor of a join is followed if the user does not say it: the one with the most layers of its own, among
    those that lead to the layer where the way ends. Of several it is the first, and without a rule the
    last: an attention is linear in its values."""
    behind = [_layers_behind(layer_graph.graph, value) for _, value in op.inputs]
    counts = []
    for i, (_, value) in enumerate(op.inputs):
        others = set[int]().union(*(one for j, one in enumerate(behind) if j != i))
        leads = leading is None or value in leading
        counts.append((leads, len(behind[i] - others)))
    most = [i for i, count in enumerate(counts) if count == max(counts)]
    return most[0] if op.rule.apply is not None else most[-1]


def _layers_behind(graph: Graph, value: int) -> set[int]:
    """The ordinals of the weighted operations that a value depends on."""
    found, seen, waiting = set[int](), set[int](), [value]
    while waiting:
        op = graph.maker.get(waiting.pop())
        if op is not None and id(op) not in seen:
            seen.add(id(op))
            waiting += [one for _, one in op.inputs]
            if op.role.weighted:
                found.add(op.ordinal)
    return found


def _rule(op: Op, path: Path) -> Rule | None:
    """The rule that undoes a join with regard to the tensor at ``path``; None: only a trial can tell whether there is
    one."""
    rule = op.rule
    roles = (Role.AFFINE, Role.SHAPE, *((Role.LAYER,) if path in FIRST else ()))
    known = rule.apply is not None and rule.role in roles
    if known and rule.variant is not None and rule.variant(Operation(op.func, op.args, op.kwargs, (path,))) is not None:
        return None
    return rule if known else None


def _described(layer_graph: LayerGraph, value: int, names: dict[int, str]) -> str:
    """A value in words: the output of a layer, an embedding or a join, or what a norm or activation makes of it."""
    after_range = part = False
    while (op := layer_graph.graph.maker.get(value)) is not None and (op.role.passable or op.role is Role.SELECT):
        after_range = after_range or op.role.sets_range
        part = part or op.role is Role.SELECT
        value = op.source
    if op is None:
        name = "the model's input"
    else:
        layer = next((layer for layer in layer_graph.layers if layer.op is op), None)
        owner = op.owner.name if op.owner is not None else op.kind
        name = repr(shown(owner if layer is None else layer.name) if id(op) not in names else names[id(op)])
    if after_range or op is not None:
        name = f"the activation after {name}" if after_range else f"the output of {name}"
    return f"a part of {name}" if part else name


def shape_in_words(layer_graph: LayerGraph, value: int) -> str:
    """The shape of a value, with N for the number of samples: "(N, 64, 8, 8)"."""
    shape, where = layer_graph.shapes[value], layer_graph.batch.get(value)
    sizes = [str(size) for size in shape]
    if where is not None:
        times = shape[where.dim] // layer_graph.batch_size
        sizes[where.dim] = "N" if times == 1 else f"{times}·N"
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
