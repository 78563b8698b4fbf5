"""Classification of the calls in a trace: the role of each operation and the module that owns its weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from racecar.plan import parts
from racecar.plan.experts import Tables
from racecar.plan.graph import Graph, Op
from racecar.rules import fallback, find
from racecar.rules.operation import FIRST
from racecar.rules.registry import NO_RULE, Rules, label
from racecar.rules.roles import Role
from racecar.rules.shape import PARTS
from racecar.rules.torch_functions import INPLACE_POSITION, METHOD_AS_FUNCTION, OUT_OF_PLACE, forms
from racecar.watch.calls import Call, without_data
from racecar.watch.modules import ModuleWatch
from racecar.watch.owners import Weights
from racecar.watch.trace import Trace


def build(trace: Trace, model: nn.Module, modules: ModuleWatch | None, rules: Rules) -> Graph:
    """The graph of all calls that use data, each as an operation with a role."""
    weights = Weights(trace, model, modules)
    ops: list[Op] = []
    tables = Tables()
    for ordinal, i in enumerate(trace.links):
        ops.append(_classify(trace, i, ordinal, weights, rules, tables))
        tables.remember(ops[-1], trace, i)
        for old, new in trace.spills.get(i, ()):
            inputs = (*([] if old is None else [((0,), old)]), ((1,), ops[-1].outputs[0]))
            ops.append(Op(ordinal, Role.JOIN, f"{ops[-1].kind} of a part", NO_RULE, None, (), {}, inputs, (new,)))
    return Graph(trace, parts.split_parts(ops))


def _classify(trace: Trace, i: int, ordinal: int, weights: Weights, rules: Rules, tables: Tables) -> Op:
    """Call ``i`` of a trace as an operation; ``ordinal`` is its position among the calls that use data."""
    call, links = trace.calls[i], trace.links[i]
    if call.func is Tensor.copy_:  # a.copy_(b): a is overwritten
        links = links[-1:]
    links, lookup = tables.without_weights(call.func, links, trace)
    at = tuple([path for path, _ in links])
    args, kwargs = without_data(call, at)
    rule = find(call.func, rules) or NO_RULE
    owner = weights.of_call(i) if lookup is None else lookup.owner
    if owner is not None and not call.grad:
        owner = replace(owner, cut_off="no_grad")
    func = OUT_OF_PLACE.get(call.func, call.func)
    if rule.role in (Role.ACTIVATION, Role.AFFINE, Role.RESAMPLE):
        func = METHOD_AS_FUNCTION.get(func, func)
    op = Op(
        ordinal, Role.UNKNOWN, rule.kind or label(call.func), rule, func,
        _without_tensors(args), _without_tensors(kwargs), links, trace.outputs_of[i], owner,
        inplace_at=INPLACE_POSITION.get(func), called=call.func,
        lookup=None if lookup is None else lookup.ordinal, grad=call.grad,
    )  # fmt: skip
    op.role = _role(op, trace, call)
    if op.role is Role.JOIN or (op.role is Role.SKIPPED and len(links) > 1):
        op.kind = label(call.func)
    if op.rule.by_vjp:
        op.kind = f"{op.kind} (vjp)"
    return op


def _without_tensors(value: Any) -> Any:
    """Arguments with None in place of tensors: a plan must not keep the tensors of the planned pass alive."""
    if isinstance(value, Tensor):
        return None
    if type(value) in (tuple, list):
        return type(value)([part if isinstance(part, _PLAIN) else _without_tensors(part) for part in value])
    if isinstance(value, dict):
        return {name: _without_tensors(part) for name, part in value.items()}
    return value


_PLAIN = (int, float, str, type(None))
"""Types of arguments that contain no tensor."""


def _role(op: Op, trace: Trace, call: Call) -> Role:
    """The role of an operation: that of its rule, unless its inputs or outputs make it another one.

    Where the role of the rule does not fit, ``op.rule`` is replaced.
    """
    role, values = op.rule.role, {v for _, v in op.inputs}
    if role is Role.JOIN:
        return role
    if len(op.inputs) > 1 and op.owner is not None and (role is Role.LAYER or call.func in _SEVERAL_TENSORS):
        return Role.SKIPPED
    if len(values) > 1:
        return Role.JOIN
    if role is Role.SOURCE:
        return role
    out = trace.tensor(op.outputs[0]) if op.outputs else None
    if out is None or not out.is_floating_point():
        return Role.UNKNOWN
    if role in (Role.PASS, Role.SHAPE, Role.SELECT) and not trace.tensor(op.source).is_floating_point():
        return Role.SOURCE  # an integer or a mask is converted to float, or is an index into a table
    if len(op.inputs) > 1:  # x * x, cat([x, x])
        return Role.JOIN
    path = op.inputs[0][0]
    if role is Role.LAYER:
        if call.func in _INPUT_FIRST and path not in FIRST:
            return Role.UNKNOWN
        return role if op.owner is not None else Role.SHAPE
    if call.func is Tensor.copy_ and path in FIRST:
        return Role.UNKNOWN
    if role is Role.SELECT or call.func in PARTS or op.kind == "pad":
        return parts.role(op, call, trace.tensor(op.source), out)
    variant = op.rule.variant(op.bind(call)) if op.rule.variant is not None else None
    if variant is not None:
        op.rule = variant
        return variant.role
    return role if role is not Role.UNKNOWN else _role_without_rule(op, call, trace.tensor(op.source))


def _role_without_rule(op: Op, call: Call, x: Tensor) -> Role:
    """The role of an operation on x without a rule: if it is affine, that of the general rule, which it is given."""
    if call.func in OUT_OF_PLACE or call.func is Tensor.__setitem__ or not x.is_floating_point():
        return Role.UNKNOWN
    if fallback.is_affine(op.bind(call), x):
        op.rule = fallback.by_adjoint(Role.SHAPE if op.owner is None else Role.LAYER, op.rule)
        return op.rule.role
    return Role.SKIPPED if op.owner is not None else Role.UNKNOWN


_INPUT_FIRST = frozenset((F.linear, *(getattr(F, f"conv{t}{d}d") for t in ("", "_transpose") for d in (1, 2, 3))))
"""Functions whose rules are for data as the first argument."""
_SEVERAL_TENSORS = frozenset(forms("bilinear baddbmm einsum grouped_mm _grouped_mm"))
"""Weighted operations on several tensors, which no rule can undo if more than one of them is data."""
