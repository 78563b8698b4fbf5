"""From a trace to a graph of operations: what each one is, whose weight it carries, which are joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from racecar.plan import parts
from racecar.rules import fallback, find
from racecar.rules.registry import INPLACE_POSITION, OUT_OF_PLACE, SPELT_OUT, Operation, Path, Rule, forms, label
from racecar.rules.shape import PARTS
from racecar.watch.calls import Call, ModuleWatch, without_data
from racecar.watch.owners import Owner, Weights
from racecar.watch.trace import Trace

PASSABLE = ("norm", "activation", "shape", "resample", "affine", "pass")
"""Roles that the way back goes through between two layers."""


@dataclass(eq=False)
class Op:
    """One operation on data.

    ``role`` is that of its rule, or "join" (two or more tensors of data), "skipped" (a weight without a rule) or
    "unknown" (no weight, no rule).
    """

    ordinal: int
    """Its position among the calls that use data."""
    role: str
    kind: str
    rule: Rule | None
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[tuple[Path, int], ...]
    outputs: tuple[int, ...]
    owner: Owner | None = None
    module: nn.Module | None = None
    inplace_at: int | None = None
    called: Any = None
    """The function as the model called it, maybe in place."""
    members: tuple[Op, ...] = ()
    """For several calls taken as one: they are made again one by one."""
    slot: int = 0
    """Which of the function's results it gives, of one that makes several parts."""

    @property
    def source(self) -> int:
        """The value that a unary operation works on."""
        return self.inputs[0][1]

    @property
    def pointwise(self) -> bool:
        return self.rule is not None and self.rule.pointwise

    def operation(self, calls: Sequence[Call | None], name: str = "") -> Operation:
        """The operation with its real arguments; those seen while planning where a call is hidden."""
        if self.members:
            return _Replay(self, [member.operation(calls) for member in self.members], name or self.kind)
        return self.bind(None if self.module is not None else calls[self.ordinal], name)

    def bind(self, call: Call | None, name: str = "") -> Operation:
        """The operation with the arguments of ``call``."""
        at = tuple(path for path, _ in self.inputs)
        args, kwargs = (self.args, self.kwargs) if call is None else without_data(call, at)
        module = self.module or (self.owner.module if self.owner else None)
        return Operation(
            self.func, args, kwargs, at, name or self.kind, module, self.owner is not None, self.inplace_at
        )


class _Replay(Operation):
    """Several calls that together are one function of one tensor."""

    __slots__ = ("op",)

    def __init__(self, op: Op, members: list[Operation], name: str) -> None:
        super().__init__(None, (), {}, name=name)
        self.op, self.members = op, members

    def __call__(self, x: Tensor) -> Any:
        made: dict[int, Any] = {self.op.source: x}
        for op, member in zip(self.op.members, self.members, strict=True):
            data = [made[value] for _, value in op.inputs]
            if op.role == "pass":  # a dropout draws no number on the way back
                out = data[0]
            elif op.role in ("norm", "activation") and op.rule is not None and op.rule.apply is not None:
                out = op.rule.apply(member, data[0])
            else:
                out = member.run(data)
            outs = (out,) if isinstance(out, Tensor) else [one for one in out if isinstance(one, Tensor)]
            made.update(zip(op.outputs, outs, strict=True))
        return made[self.op.outputs[0]]


@dataclass(eq=False)
class Graph:
    """The operations on data of one forward pass."""

    trace: Trace
    ops: list[Op]

    def __post_init__(self) -> None:
        self.positions = list(self.trace.links)
        self.index()

    def call(self, ordinal: int) -> Call:
        """The call behind an operation."""
        return self.trace.calls[self.positions[ordinal]]

    def forget(self) -> None:
        """Drop the trace with its tensors: a plan outlives the pass that it was made from."""
        del self.trace

    def index(self) -> None:
        """Who made and who uses each value."""
        self.maker: dict[int, Op] = {}
        self.users: dict[int, list[Op]] = {}
        for op in self.ops:
            for value in op.outputs:
                self.maker[value] = op
            for value in {v for _, v in op.inputs}:
                self.users.setdefault(value, []).append(op)


def build(trace: Trace, model: nn.Module, modules: ModuleWatch | None = None) -> Graph:
    """Classify every call that uses data."""
    weights = Weights(trace, model, modules)
    ops = []
    for ordinal, i in enumerate(trace.links):
        ops.append(_classify(trace, i, ordinal, weights))
        for old, new in trace.spills.get(i, ()):
            inputs = (*([] if old is None else [((0,), old)]), ((1,), ops[-1].outputs[0]))
            ops.append(Op(ordinal, "join", f"{ops[-1].kind} of a part", None, None, (), {}, inputs, (new,)))
    return Graph(trace, parts.apart(ops))


def _classify(trace: Trace, i: int, ordinal: int, weights: Weights) -> Op:
    call, links = trace.calls[i], trace.links[i]
    if call.func is Tensor.copy_:  # what it is copied into is overwritten
        links = links[-1:]
    at = tuple(path for path, _ in links)
    args, kwargs = without_data(call, at)
    rule = find(call.func)
    owner = weights.of_call(i)
    func = OUT_OF_PLACE.get(call.func, call.func)
    if rule is not None and rule.role in ("activation", "affine", "resample"):
        func = SPELT_OUT.get(func, func)
    op = Op(
        ordinal, "unknown", rule.kind if rule else label(call.func), rule, func, _hide(args), _hide(kwargs),
        links, trace.made[i], owner, inplace_at=INPLACE_POSITION.get(func), called=call.func,
    )  # fmt: skip
    op.role = _role(op, trace, call)
    if op.role == "join" or (op.role == "skipped" and len(links) > 1):
        op.kind = label(call.func)
    if op.role == "affine (vjp)":
        op.role = "shape" if owner is None else "layer"
        op.rule = fallback.ADJOINT_SHAPE if owner is None else fallback.ADJOINT_LAYER
        op.kind = f"{op.kind} (vjp)"
    return op


def _hide(value: Any) -> Any:
    """Arguments without their tensors: a plan holds no tensor of the pass that it was made from."""
    if isinstance(value, Tensor):
        return None
    if type(value) in (tuple, list):
        return type(value)([one if isinstance(one, _PLAIN) else _hide(one) for one in value])
    if isinstance(value, dict):
        return {name: _hide(one) for name, one in value.items()}
    return value


_PLAIN = (int, float, str, type(None))


def _role(op: Op, trace: Trace, call: Call) -> str:
    rule, values = op.rule, {v for _, v in op.inputs}
    role = rule.role if rule else "unknown"
    if len(op.inputs) > 1 and op.owner is not None and (role == "layer" or call.func in _SEVERAL_TENSORS):
        return "skipped"
    if len(values) > 1:
        return "join"
    if role == "source":
        return role
    made = trace.tensor(op.outputs[0]) if op.outputs else None
    if made is None or not made.is_floating_point():
        return "unknown"
    if role in ("pass", "shape", "select") and not trace.tensor(op.source).is_floating_point():
        return "source"  # a one-hot code or a mask becomes a number, or an index picks from a table
    if len(op.inputs) > 1:  # x * x, cat([x, x])
        return "join"
    path = op.inputs[0][0]
    if role == "layer":
        if call.func in _INPUT_FIRST and path not in _FIRST:
            return "unknown"
        return role if op.owner is not None else "shape"
    if call.func is Tensor.copy_ and path in _FIRST:
        return "unknown"
    if role == "select" or call.func in PARTS or op.kind == "pad":
        return parts.role(op, call, trace.tensor(op.source), made)
    if op.kind == "div" and path not in _FIRST:  # c / x
        op.rule = _POINTWISE
        return "activation"
    if role == "resample" and isinstance(op.bind(call).get(1, "other"), Tensor):  # torch.max(x, c)
        op.rule = _POINTWISE
        return "activation"
    if role == "unknown":
        x = trace.tensor(op.source)
        if call.func in OUT_OF_PLACE or call.func is Tensor.__setitem__ or not x.is_floating_point():
            return "unknown"
        if fallback.is_affine(op.bind(call), x):
            return "affine (vjp)"
        return "skipped" if op.owner is not None else "unknown"
    return role


_FIRST = ((0,), ("input",))
_INPUT_FIRST = frozenset((F.linear, *(getattr(F, f"conv{t}{d}d") for t in ("", "_transpose") for d in (1, 2, 3))))
_SEVERAL_TENSORS = frozenset(
    forms("bilinear rnn_tanh_cell rnn_relu_cell lstm_cell gru_cell lstm gru rnn_tanh rnn_relu baddbmm einsum")
    + forms("grouped_mm _grouped_mm")
)
"""Weighted operations on more than one tensor of data: no rule can give all of them back."""
_POINTWISE = Rule("activation", "pointwise", lambda op, x: op(x))
