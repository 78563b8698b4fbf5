"""Modules that have a rule: all calls of such a module become one operation.

A rule undoes one output. Of a module with several outputs, such as an LSTM with its states, this is the output that the
model uses; if the model uses several, it is the first, and the others are a fork.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from racecar.plan.graph import Graph, Op
from racecar.rules.registry import NO_RULE, Rule
from racecar.rules.roles import Role
from racecar.watch.modules import ModuleWatch, Span
from racecar.watch.owners import Owner


def gather(graph: Graph, modules: ModuleWatch) -> None:
    """Replace the calls of every module whose class has a rule by one operation."""
    replaced: dict[int, tuple[Op, ...]] = {}
    for span in modules.spans:  # inner spans come first, outer ones replace them
        rule = modules.ruled[span.module].of_module()
        inside = [op for op in graph.ops if span.start <= graph.positions[op.ordinal] < span.end]
        if inside:
            whole = _whole(graph, inside, span, rule, modules.model)
            replaced.update({op.ordinal: whole for op in inside if whole})
    if replaced:
        graph.ops = list(dict.fromkeys(one for op in graph.ops for one in replaced.get(op.ordinal, (op,))))
        graph.index()


def _whole(graph: Graph, inside: Sequence[Op], span: Span, rule: Rule, model: nn.Module) -> tuple[Op, ...]:
    """A module as one operation, and a second one for the outputs that its rule does not undo; none without outputs.

    Args:
        inside: the operations of the module's calls.
        span: one call of the module.
        rule: of the module.
    """
    tensor, ordinal = graph.trace.tensor, inside[-1].ordinal
    inner = {value for op in inside for value in op.outputs}
    entering = tuple(dict.fromkeys(v for op in inside for _, v in op.inputs if v not in inner))
    places = [id(out) for out in span.outputs]
    leaving = sorted((v for v in inner if id(tensor(v)) in places), key=lambda v: (places.index(id(tensor(v))), -v))
    if not leaving:
        return ()
    used = [v for v in leaving if any(op not in inside for op in graph.users.get(v, ()))]
    first, *others = used or leaving[:1]
    owner, grad = _owner(span.module, model), any(op.grad for op in inside)
    if owner is not None and not grad:
        owner.cut_off = "no_grad"
    role = rule.role if len(entering) == 1 else Role.JOIN
    if role is Role.LAYER and owner is None:
        role = Role.SHAPE
    inputs = tuple(((i,), value) for i, value in enumerate(entering))
    func = type(span.module)
    whole = Op(ordinal, role, rule.kind, rule, func, (None,), {}, inputs, (first,), owner, span.module, grad=grad)
    if not others:
        return (whole,)
    kind = f"{rule.kind}, other outputs"
    return whole, Op(ordinal, Role.JOIN, kind, NO_RULE, None, (), {}, (((0,), first),), tuple(others))


def _owner(module: nn.Module, model: nn.Module) -> Owner | None:
    """The owner of the module's first parameter; None for a module without parameters."""
    weight = next(module.named_parameters(), None)
    if weight is None:
        return None
    path, _, attribute = weight[0].rpartition(".")
    name = next((name for name, submodule in model.named_modules() if submodule is module), "")
    return Owner(name, module, "weight", module.get_submodule(path), attribute, derived=True)
