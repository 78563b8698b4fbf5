"""The operations on data of one forward pass, and who makes and uses each value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from racecar.rules.linear import like, weight_of
from racecar.rules.operation import Operation, Path
from racecar.rules.registry import Rule
from racecar.rules.roles import Role
from racecar.support.torch_private import map_tensors
from racecar.support.without_grad import WithConstants, constant
from racecar.watch.calls import Call, without_data
from racecar.watch.owners import Owner
from racecar.watch.trace import Trace


@dataclass(eq=False)
class Op:
    """One operation on data, with the role of its rule, or one of those that no rule has."""

    ordinal: int
    """Its position among the calls that use data."""
    role: Role
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
    picked: int | None = None
    """The ordinal of the lookup in which the data picked its weight, such as an expert's, from a table of weights."""
    slot: int = 0
    """Which of the function's results it gives, of one that makes several parts."""
    grad: bool = True
    """Whether it ran with gradient, not in a ``no_grad`` of the model's own."""
    constants: WithConstants | None = field(init=False, repr=False)
    """For a whole module that ran without gradient: its rule takes the weights out of the module itself."""
    held: tuple[Any] = field(init=False, repr=False)
    """``func`` in a tuple: out of an attribute dynamo cannot call a method of Tensor, up to torch 2.11 at least."""
    at: tuple[Path, ...] = field(init=False, repr=False)
    """The places of its inputs."""
    first: bool = field(init=False, repr=False)
    """Whether the data is its first argument and no other: nearly always."""
    rest: tuple[nn.Module | None, bool, int | None] = field(init=False, repr=False)
    """What an :class:`Operation` holds beside: the module that owns the weight, if there is one, ``inplace_at``."""
    followed: tuple[tuple[Path, int], ...] = field(init=False, repr=False)
    """The inputs that say what the positions of its output are: of an attention the queries, of a product of matrices
    not what is added to it."""

    def __post_init__(self) -> None:
        self.constants = None if self.module is None or self.grad else WithConstants(self.module)
        self.held = (self.func,)
        self.at = tuple(path for path, _ in self.inputs)
        self.first = self.at == ((0,),)
        module = self.module or (self.owner.module if self.owner else None)
        self.rest = (module, self.owner is not None, self.inplace_at)
        leads = None if self.rule is None else self.rule.positions_from
        self.followed = self.inputs if leads is None else tuple(one for one in self.inputs if one[0] in leads)

    @property
    def source(self) -> int:
        """The value that a unary operation works on."""
        return self.inputs[0][1]

    @property
    def by_vjp(self) -> bool:
        return self.rule is not None and self.rule.by_vjp

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
        if call is None:
            args, kwargs = self.args, self.kwargs
        elif self.first:  # less for torch.compile to trace
            args, kwargs = (None, *call.args[1:]), call.kwargs
        else:
            args, kwargs = without_data(call, self.at)
        if not self.grad:
            args, kwargs = map_tensors(constant, (args, kwargs))
        return Operation(self.held[0], args, kwargs, self.at, name or self.kind, *self.rest)


class _Replay(Operation):
    """Several calls that together are one function of one tensor."""

    def __init__(self, op: Op, members: Sequence[Operation], name: str) -> None:
        super().__init__(None, (), {}, name=name)
        self.op, self.members = op, members

    def with_members(self, members: Sequence[Operation]) -> Operation:
        return _Replay(self.op, members, self.name)

    def __call__(self, x: Tensor) -> Any:
        made: dict[int, Any] = {self.op.source: x}
        for op, member in zip(self.op.members, self.members, strict=True):
            data = [made[value] for _, value in op.inputs]
            if op.role is Role.PASS:  # a dropout draws no number in the reverse pass
                out = data[0]
            elif op.role.sets_range and op.rule is not None and op.rule.apply is not None:
                out = op.rule.apply(member, data[0])
            else:
                if op.role is Role.LAYER:  # casts are passed over, too
                    data = [like(data[0], weight_of(member))]
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

    def leading(self, values: Iterable[int]) -> list[Op]:
        """The operations by which values are made, in forward order; of several taken as one, each by itself."""
        found, needed = list[Op](), set(values)
        for op in reversed([one for whole in self.ops for one in (whole.members or (whole,))]):
            if needed.intersection(op.outputs):
                found.append(op)
                needed |= {value for _, value in op.followed}
        return found[::-1]

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
