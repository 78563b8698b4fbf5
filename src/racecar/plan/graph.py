"""The operations of one forward pass as a graph: which operation makes each value, and which ones use it."""

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
    """One call of the forward pass that uses data; several calls, or a module, may be combined into one operation.

    ``func``, ``args``, ``kwargs``, ``module`` and ``inplace_at`` are those of an :class:`Operation`, without tensors;
    ``owner`` is the module that owns the weight.
    """

    ordinal: int
    """The position of the call among the calls that use data."""
    role: Role
    """The role of the rule, or JOIN, SKIPPED or UNKNOWN."""
    kind: str
    rule: Rule
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[tuple[Path, int], ...]
    """The data among the arguments: (place, number of the value)."""
    outputs: tuple[int, ...]
    owner: Owner | None = None
    module: nn.Module | None = None
    inplace_at: int | None = None
    called: Any = None
    """The function that the model called; it may work in place, unlike ``func``."""
    members: tuple[Op, ...] = ()
    """For several calls combined into one operation: the calls."""
    lookup: int | None = None
    """The ordinal of the call in which the data selected the weight from a parameter (an expert's weight)."""
    slot: int = 0
    """The index of the operation's output among the results of its function."""
    grad: bool = True
    """False if the model ran the call under ``no_grad``."""
    constants: WithConstants | None = field(init=False, repr=False)
    """For a module that ran under ``no_grad``: makes its weights constants while its rule, which reads them, runs."""
    held: tuple[Any] = field(init=False, repr=False)
    """``func`` in a tuple: dynamo (torch 2.11 and before) cannot call a method of Tensor that is an attribute."""
    at: tuple[Path, ...] = field(init=False, repr=False)
    """The places of the inputs among the arguments."""
    only_first: bool = field(init=False, repr=False)
    """Whether the first argument, and no other, is data."""
    _rest: tuple[nn.Module | None, bool, int | None] = field(init=False, repr=False)
    """The attributes ``module``, ``trainable`` and ``inplace_at`` of an :class:`Operation`."""
    position_inputs: tuple[tuple[Path, int], ...] = field(init=False, repr=False)
    """The inputs that determine the positions of the output: of an attention, only the queries."""

    def __post_init__(self) -> None:
        self.constants = None if self.module is None or self.grad else WithConstants(self.module)
        self.held = (self.func,)
        self.at = tuple([path for path, _ in self.inputs])
        self.only_first = self.at == ((0,),)
        module = self.module or (self.owner.module if self.owner else None)
        self._rest = (module, self.owner is not None, self.inplace_at)
        places = self.rule.positions_from
        self.position_inputs = self.inputs if places is None else tuple(x for x in self.inputs if x[0] in places)

    @property
    def source(self) -> int:
        """The number of the first input's value."""
        return self.inputs[0][1]

    @property
    def single_calls(self) -> tuple[Op, ...]:
        """The calls that were combined into the operation; for a single call the operation itself."""
        return self.members or (self,)

    def operation(self, calls: Sequence[Call | None], name: str = "") -> Operation:
        """The operation with the arguments of a pass; with those of the planned pass where ``calls`` has None."""
        if self.members:
            return _Replay(self, [member.operation(calls) for member in self.members], name or self.kind)
        return self.bind(None if self.module is not None else calls[self.ordinal], name)

    def bind(self, call: Call | None, name: str = "") -> Operation:
        """The operation with the arguments of ``call``; None: with those of the planned pass."""
        if call is None:
            args, kwargs = self.args, self.kwargs
        elif self.only_first:  # less for torch.compile to trace
            args, kwargs = (None, *call.args[1:]), call.kwargs
        else:
            args, kwargs = without_data(call, self.at)
        if not self.grad:
            args, kwargs = map_tensors(constant, (args, kwargs))
        return Operation(self.held[0], args, kwargs, self.at, name or self.kind, *self._rest)


class _Replay(Operation):
    """An operation of several calls, a function of one tensor: calling it makes all its calls."""

    def __init__(self, op: Op, members: Sequence[Operation], name: str) -> None:
        super().__init__(None, (), {}, name=name)
        self.op, self.members = op, members

    def with_members(self, members: Sequence[Operation]) -> Operation:
        return _Replay(self.op, members, self.name)

    def __call__(self, x: Tensor) -> Any:
        values: dict[int, Any] = {self.op.source: x}
        for op, member in zip(self.op.members, self.members, strict=True):
            data = [values[value] for _, value in op.inputs]
            if op.role is Role.PASS:  # dropout is skipped: the reverse pass draws no random numbers
                out = data[0]
            elif op.role.sets_range and op.rule.apply is not None:
                out = op.rule.apply(member, data[0])
            else:
                if op.role is Role.LAYER:  # casts are skipped, so the dtype may differ
                    data = [like(data[0], weight_of(member))]
                out = member.run(data)
            outs = (out,) if isinstance(out, Tensor) else [one for one in out if isinstance(one, Tensor)]
            values.update(zip(op.outputs, outs, strict=True))
        return values[self.op.outputs[0]]


@dataclass(eq=False)
class Graph:
    """The operations of one forward pass that use data, and which of them makes and uses each value.

    A value is the number of a tensor that depends on the model's inputs. A tensor that is changed in place becomes a
    new value (:mod:`racecar.watch.links`).
    """

    trace: Trace
    ops: list[Op]
    """The operations in forward order."""

    def __post_init__(self) -> None:
        self.positions = list(self.trace.links)
        """Ordinal → position among all calls of the pass."""
        self.index()

    def call(self, ordinal: int) -> Call:
        """The call of the planned pass with this ordinal."""
        return self.trace.calls[self.positions[ordinal]]

    def single_calls(self) -> list[Op]:
        """All calls in forward order, also those that were combined into one operation."""
        return [call for op in self.ops for call in (op.members or (op,))]

    def mask_operations(self, values: Iterable[int]) -> list[Op]:
        """The single calls, in forward order, through which masks are followed to reach ``values``."""
        needed, operations = set(values), list[Op]()
        for op in reversed(self.single_calls()):
            if needed.intersection(op.outputs):
                operations.append(op)
                needed |= {value for _, value in op.position_inputs}
        return operations[::-1]

    def constants(self, op: Op) -> list[Tensor]:
        """The tensors among the arguments of an operation that are not data, in the planned pass."""
        return self.trace.beside_data(self.positions[op.ordinal])

    def only_user(self, value: int) -> Op | None:
        """The operation that uses a value, if there is exactly one."""
        users = self.users.get(value, ())
        return users[0] if len(users) == 1 else None

    def chain(self, op: Op, value: int) -> list[Op]:
        """The operations from ``value`` back to ``op``, without ``op``; each must have one input."""
        chain: list[Op] = []
        while value != op.outputs[0]:
            chain.append(self.maker[value])
            value = chain[-1].source
        return chain

    def forget(self) -> None:
        """Delete the trace with its tensors, when all is found: a plan is kept longer than the planned pass."""
        del self.trace

    def index(self) -> None:
        """Set ``maker`` (value → operation that makes it) and ``users`` (value → its users) from ``ops``."""
        self.maker: dict[int, Op] = {}
        self.users: dict[int, list[Op]] = {}
        for op in self.ops:
            for value in op.outputs:
                self.maker[value] = op
            for value in {v for _, v in op.inputs}:
                self.users.setdefault(value, []).append(op)
