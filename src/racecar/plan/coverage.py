"""Coverage of a model: which layer uses each weight (parameter of two or more dimensions), or why none does."""

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
_UNWATCHED = "not seen: its input comes from outside the watched calls (such as a scripted function or another thread)"
_UNUSED = "not seen: no watched call uses it (unused, or used in a scripted function or another thread)"
_OTHER_THREAD = "not seen: its module runs in another thread"


class Uncovered(NamedTuple):
    """A weight that no layer of a plan uses."""

    name: str
    reason: str


class Constant(NamedTuple):
    """A weighted operation whose input, as far as was watched, does not depend on the model's input."""

    name: str
    kind: str
    reason: str


class Coverage(NamedTuple):
    """Which weights of a model its layers use, all by their names."""

    sizes: dict[str, int]
    """The number of elements of every weight."""
    of_layer: tuple[frozenset[str], ...]
    """For each layer the weights that it uses, also those from which its weight is computed."""
    constants: tuple[Constant, ...]
    uncovered: tuple[Uncovered, ...]

    def share(self, layers: Iterable[int]) -> float | None:
        """The share of all weights, in elements, that these layers use; None for a model without weights."""
        used = frozenset[str]().union(*(self.of_layer[i] for i in layers))
        total = sum(self.sizes.values())
        return sum(self.sizes[name] for name in used) / total if total else None


class _Origin(NamedTuple):
    """What the constant arguments of a call were computed from."""

    weights: frozenset[str] = frozenset()
    unwatched: bool = False
    """Whether one of these tensors comes from no call that was watched."""


def coverage(
    graph: Graph,
    model: nn.Module,
    modules: ModuleWatch | None,
    layers: Sequence[Op],
    names: Collection[str],
    rules: Rules,
) -> Coverage:
    """The coverage of a model.

    Args:
        graph: the operations of a forward pass.
        layers: those of them that are layers.
        names: the names of these layers.
    """
    all_weights = {name: weight for name, weight in model.named_parameters() if weight.dim() > 1}
    weights = {id(weight): name for name, weight in all_weights.items()}
    origins = _origins(graph.trace, model, weights)
    of_layer = tuple(_used(graph, op, origins, weights) for op in layers)
    constants = _constants(graph.trace, Weights(graph.trace, model, modules), origins, names, rules)
    covered = frozenset[str]().union(*of_layer, *(origins[i].weights for i, _ in constants))
    reasons = _reasons(graph, origins, weights)
    for module in modules.elsewhere if modules is not None else ():
        for weight in module.parameters():
            reasons.setdefault(weights.get(id(weight), ""), _OTHER_THREAD)
    return Coverage(
        {name: weight.numel() for name, weight in all_weights.items()},
        of_layer,
        tuple(constant for _, constant in constants),
        tuple(Uncovered(name, reasons.get(name, _UNUSED)) for name in all_weights if name not in covered),
    )


def _origins(trace: Trace, model: nn.Module, weights: dict[int, str]) -> list[_Origin]:
    """The origin of the constant arguments of every call. ``weights``: id of each weight → its name."""
    sources = (*model.parameters(), *model.buffers(), *trace.inputs)
    origin_of: dict[int, _Origin] = {id(tensor): _Origin() for tensor in sources}
    origin_of |= {number: _Origin(frozenset((name,))) for number, name in weights.items()}
    origins = []
    for i, call in enumerate(trace.calls):
        data = {path for path, _ in trace.links.get(i, ())}
        parts = [
            origin_of.get(id(tensor), _Origin(unwatched=True))
            for path, tensor in tensors(call.args, call.kwargs)
            if path not in data and call.func not in NOT_DATA
        ]
        names = frozenset[str]().union(*[part.weights for part in parts])
        origin = _Origin(names, any(part.unwatched for part in parts))
        origins.append(origin)
        origin_of |= {id(out): _Origin() if data else origin for out in outputs(call)}
    return origins


def _used(graph: Graph, op: Op, origins: Sequence[_Origin], weights: dict[int, str]) -> frozenset[str]:
    """The weights among the constant arguments of an operation."""
    if op.module is not None:
        return frozenset(weights[id(weight)] for weight in op.module.parameters() if id(weight) in weights)
    calls = [i for call in (op.members or (op,)) for i in (call.ordinal, call.lookup) if i is not None]
    return frozenset[str]().union(*(origins[graph.positions[i]].weights for i in calls))


def _constants(
    trace: Trace, owners: Weights, origins: Sequence[_Origin], names: Collection[str], rules: Rules
) -> list[tuple[int, Constant]]:
    """The calls of weighted operations that use no data, each with its position, of modules that have no layer.

    Args:
        names: of the layers.
    """
    constants = []
    for i, call in enumerate(trace.calls):
        rule = find(call.func, rules)
        owner = owners.of_constant(i) if i not in trace.links and rule is not None and rule.role is Role.LAYER else None
        known = owner is not None and (owner.name in names or f"{owner.name}.{owner.attribute}".lstrip(".") in names)
        if rule is not None and owner is not None and not owner.derived and not known:
            constants.append((i, Constant(owner.name, rule.kind, _UNWATCHED if origins[i].unwatched else _NO_DATA)))
    return constants


def _reasons(graph: Graph, origins: Sequence[_Origin], weights: dict[int, str]) -> dict[str, str]:
    """For each weight that some call uses, why it belongs to no layer; the calls on data say it first."""
    reasons: dict[str, str] = {}
    for op in graph.ops:
        if op.role.weighted:
            continue
        for name in _used(graph, op, origins, weights):
            reasons.setdefault(name, _reason(graph, op))
    for unwatched, reason in ((True, _UNWATCHED), (False, _NO_DATA)):
        for i, origin in enumerate(origins):
            if i not in graph.trace.links and origin.unwatched is unwatched:
                for name in origin.weights:
                    reasons.setdefault(name, reason)
    return reasons


def _reason(graph: Graph, op: Op) -> str:
    """Why an operation that combines a weight with data is not a layer."""
    kind = op.kind if op.called is None else label(op.called)
    if op.role is Role.SOURCE:
        return f"the data selects parts of it ({kind}), which count as data"
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
