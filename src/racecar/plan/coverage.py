"""The weights of a model, its parameters of two or more dimensions: which layer uses each one, or why none does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from torch import nn

from racecar.plan.graph import Graph, Op
from racecar.rules.registry import Rules, find, label
from racecar.rules.roles import Role
from racecar.watch.calls import outputs, tensors
from racecar.watch.links import NOT_DATA
from racecar.watch.modules import ModuleWatch
from racecar.watch.owners import Weights
from racecar.watch.trace import Trace

_NO_DATA = "its input does not depend on the model's input"
_LOST = "not seen: its input comes from outside the watched calls (such as a scripted function or another thread)"
_NEVER = "not seen: no watched call uses it (it is idle, or in a scripted function or another thread)"
_ELSEWHERE = "not seen: its module runs in another thread"


class Uncovered(NamedTuple):
    """A weight that no layer of a plan uses."""

    name: str
    reason: str


class Constant(NamedTuple):
    """A weighted operation that is not seen to work on data."""

    name: str
    kind: str
    reason: str


class Coverage(NamedTuple):
    """Which weights of a model a plan knows, all by their names."""

    sizes: dict[str, int]
    """Of every weight, in elements."""
    of_layer: tuple[frozenset[str], ...]
    """The weights that each layer uses, also where its own is computed from them."""
    constants: tuple[Constant, ...]
    uncovered: tuple[Uncovered, ...]

    def share(self, layers: Iterable[int]) -> float | None:
        """How much of all weights some layers use; None for a model without any."""
        used = frozenset[str]().union(*(self.of_layer[i] for i in layers))
        total = sum(self.sizes.values())
        return sum(self.sizes[name] for name in used) / total if total else None


class _Origin(NamedTuple):
    """What the arguments of a call that are not data were made of."""

    weights: frozenset[str] = frozenset()
    lost: bool = False
    """Whether a tensor among it was made by no call that was watched."""


def coverage(
    graph: Graph,
    model: nn.Module,
    modules: ModuleWatch | None,
    layers: Sequence[Op],
    names: Collection[str],
    rules: Rules,
) -> Coverage:
    """Of the layers of a graph, given as their operations and their names."""
    own = {name: weight for name, weight in model.named_parameters() if weight.dim() > 1}
    weights = {id(weight): name for name, weight in own.items()}
    origins = _origins(graph.trace, model, weights)
    of_layer = tuple(_used(graph, op, origins, weights) for op in layers)
    constants = _constants(graph.trace, Weights(graph.trace, model, modules), origins, names, rules)
    known = frozenset[str]().union(*of_layer, *(origins[i].weights for i, _ in constants))
    reasons = _reasons(graph, origins, weights)
    for module in modules.elsewhere if modules is not None else ():
        for weight in module.parameters():
            reasons.setdefault(weights.get(id(weight), ""), _ELSEWHERE)
    return Coverage(
        {name: weight.numel() for name, weight in own.items()},
        of_layer,
        tuple(constant for _, constant in constants),
        tuple(Uncovered(name, reasons.get(name, _NEVER)) for name in own if name not in known),
    )


def _origins(trace: Trace, model: nn.Module, weights: dict[int, str]) -> list[_Origin]:
    """Of every call."""
    made: dict[int, _Origin] = {id(one): _Origin() for one in (*model.parameters(), *model.buffers(), *trace.inputs)}
    made |= {number: _Origin(frozenset((name,))) for number, name in weights.items()}
    found = []
    for i, call in enumerate(trace.calls):
        data = {path for path, _ in trace.links.get(i, ())}
        parts = [
            made.get(id(one), _Origin(lost=True))
            for path, one in tensors(call.args, call.kwargs)
            if path not in data and call.func not in NOT_DATA
        ]
        origin = _Origin(frozenset[str]().union(*(one.weights for one in parts)), any(one.lost for one in parts))
        found.append(origin)
        made |= {id(one): _Origin() if data else origin for one in outputs(call)}
    return found


def _used(graph: Graph, op: Op, origins: Sequence[_Origin], weights: dict[int, str]) -> frozenset[str]:
    """The weights that an operation uses beside the data."""
    if op.module is not None:
        return frozenset(weights[id(one)] for one in op.module.parameters() if id(one) in weights)
    calls = [i for one in op.members or (op,) for i in (one.ordinal, one.picked) if i is not None]
    return frozenset[str]().union(*(origins[graph.positions[i]].weights for i in calls))


def _constants(
    trace: Trace, owners: Weights, origins: Sequence[_Origin], names: Collection[str], rules: Rules
) -> list[tuple[int, Constant]]:
    """The calls of weighted operations that see no data, of modules that are no layer elsewhere."""
    found = []
    for i, call in enumerate(trace.calls):
        rule = find(call.func, rules)
        owner = owners.of_constant(i) if i not in trace.links and rule is not None and rule.role is Role.LAYER else None
        known = owner is not None and (owner.name in names or f"{owner.name}.{owner.attribute}".lstrip(".") in names)
        if rule is not None and owner is not None and not owner.derived and not known:
            found.append((i, Constant(owner.name, rule.kind, _LOST if origins[i].lost else _NO_DATA)))
    return found


def _reasons(graph: Graph, origins: Sequence[_Origin], weights: dict[int, str]) -> dict[str, str]:
    """Why weights that are used belong to no layer: what meets data tells most."""
    found: dict[str, str] = {}
    for op in graph.ops:
        if op.role.weighted:
            continue
        for name in _used(graph, op, origins, weights):
            found.setdefault(name, _reason(graph, op))
    for lost, reason in ((True, _LOST), (False, _NO_DATA)):
        for i, origin in enumerate(origins):
            if i not in graph.trace.links and origin.lost is lost:
                for name in origin.weights:
                    found.setdefault(name, reason)
    return found


def _reason(graph: Graph, op: Op) -> str:
    """Why a weight that an operation uses beside data makes no layer."""
    kind = op.kind if op.called is None else label(op.called)
    if op.role is Role.SOURCE:
        return f"the data picks parts of it ({kind}), which count as data"
    if op.role is Role.JOIN:
        return f"no rule for {kind} of several tensors"
    if op.role is Role.AFFINE:
        return f"added to the data or multiplied with it ({kind}), which is undone"
    if op.role.sets_range:
        return f"part of a {op.role} ({op.kind}), which is applied again"
    if op.role is Role.SHAPE:
        return f"beside the data ({kind}), cut off in the reverse pass"
    numbers = " of complex numbers" if any(graph.trace.tensor(value).is_complex() for value in op.outputs) else ""
    return f"no rule for {kind}{numbers}"
