"""One table that says what to do with each kind of operation in the reverse pass.

A rule has a role, which says where in a layer the operation belongs: see :class:`racecar.rules.Role`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from racecar.rules.context import NO_CONTEXT, RuleContext
from racecar.rules.roles import Role

Path = tuple[int | str, ...]
"""Where an argument stands: ``(1,)`` second positional, ``("bias",)`` keyword, ``(0, 2)`` third of a list."""

FIRST: tuple[Path, ...] = ((0,), ("input",))
"""The first argument, however it is given."""


@dataclass(frozen=True, eq=False)
class Rule:
    """What one kind of operation is and how it is taken back (see :class:`Role`)."""

    role: Role
    """Its name, such as "activation", will do."""
    kind: str
    """The name shown in plan tables."""
    apply: Callable[..., Tensor] | None = None
    pointwise: bool = False
    """An activation that looks at every element alone, so that it may be applied in any layout."""
    lift: Callable[[Operation, Tensor, torch.Size], Tensor] | None = None
    """For a resampling that drops dimensions: bring them back with size 1, before norms are re-applied."""
    by_vjp: bool = False
    """It stands in for an affine operation that has no rule of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role.of_rule(self.role))
        needs_none = self.role in (Role.PASS, Role.SOURCE) or (self.role is Role.SELECT and self.apply is None)
        if not needs_none:
            _check_function(self.apply, self.role.arguments, f"the rule of {self.kind}, of role {str(self.role)!r},")
        if self.lift is not None:
            _check_function(self.lift, self.role.arguments, f"lift of {self.kind}")


class Operation:
    """One call that the forward pass made, with its real arguments; the data argument itself is left out.

    Attributes:
        func: the function called (its twin that is not in place), or the module class for a rule on a module.
        args, kwargs: its arguments; ``None`` stands where the data was.
        module: the module that owns the weight, if any.
        name: the layer's name, or the function's.
        trainable: whether a parameter takes part.
        members: of several calls taken as one operation, each.
        context: what the reverse pass knows beside the call.
    """

    members: Sequence[Operation] = ()

    def __init__(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        at: tuple[Path, ...] = ((0,),),
        name: str = "",
        module: nn.Module | None = None,
        trainable: bool = False,
        inplace_at: int | None = None,
        context: RuleContext = NO_CONTEXT,
    ) -> None:
        self.func, self.args, self.kwargs, self.at = func, args, kwargs, at
        self.name, self.module, self.trainable, self.inplace_at = name, module, trainable, inplace_at
        self.context = context

    def within(self, context: RuleContext) -> Operation:
        """The same call in another context."""
        rest = self.name, self.module, self.trainable, self.inplace_at
        return Operation(self.func, self.args, self.kwargs, self.at, *rest, context)

    def with_members(self, members: Sequence[Operation]) -> Operation:
        """The same of other members."""
        raise TypeError(f"{self.name!r} is one call and has no members")

    @property
    def data_first(self) -> bool:
        """Whether the data is the first argument."""
        return self.at[0] in FIRST

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """The argument that a caller may have given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def __call__(self, x: Tensor) -> Any:
        """The operation on other data ``x``, never in place."""
        return self.run([x] * len(self.at))

    def run(self, data: list[Tensor]) -> Any:
        """The operation with one tensor for each place where data stood."""
        args, kwargs = list(self.args), {k: v for k, v in self.kwargs.items() if k != "inplace"}
        for path, x in zip(self.at, data, strict=True):
            _put(args, kwargs, path, x)
        if self.inplace_at is not None and self.inplace_at < len(args):
            args[self.inplace_at] = False
        return self.func(*args, **kwargs)


def _put(args: list[Any], kwargs: dict[str, Any], path: Path, x: Tensor) -> None:
    head, *rest = path
    holder: Any = kwargs if isinstance(head, str) else args
    for step in rest:
        holder[head] = list(holder[head])
        holder, head = holder[head], step
    holder[head] = x


Rules = Mapping[Hashable, Rule]
"""Module class or function → its rule."""
GivenRules = Mapping[Any, Rule | Callable[..., Tensor]]

_RULES: dict[Hashable, Rule] = {}


def find(kind: Any, own: Rules = MappingProxyType({})) -> Rule | None:
    """The rule of a function, or of a module class or its nearest base; one of ``own`` before a registered one."""
    for one in kind.__mro__ if isinstance(kind, type) else (kind,):
        rule = own.get(one) or _RULES.get(one)
        if rule is not None:
            return rule
    return None


def own_rules(given: GivenRules | None) -> Rules:
    """Rules for one use, as a user gives them: a plain function is the rule of a layer."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise TypeError(f"rules must be a dict from module classes or functions to rules, not {type(given).__name__}")
    found: dict[Hashable, Rule] = {}
    for kind, rule in given.items():
        _check_kind(kind)
        if not isinstance(rule, Rule) and not callable(rule):
            raise TypeError(
                f"the rule of {label(kind)} must be a function (op, y, shape) -> x' or a racecar.rules.Rule, "
                f"not {type(rule).__name__}"
            )
        found[kind] = rule if isinstance(rule, Rule) else Rule(Role.LAYER, label(kind), rule)
    return found


def _check_function(function: Any, arguments: tuple[str, ...], what: str) -> None:
    """Refuse what cannot be called with these arguments."""
    wanted = f"{what} must be a function ({', '.join(arguments)})"
    if not callable(function):
        raise TypeError(f"{wanted}, not {function!r:.80}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that does not say what it takes
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"{wanted}, not {name}{signature}: (op, x) is for roles 'norm' and 'activation', (op, y, shape) for others"
        ) from None


def _check_kind(kind: Any) -> None:
    wanted = "a rule is for a module class or a function, not for"
    if isinstance(kind, nn.Module):
        raise TypeError(f"{wanted} an instance: give {type(kind).__name__}")
    if not callable(kind) or (isinstance(kind, type) and not issubclass(kind, nn.Module)):
        raise TypeError(f"{wanted} {kind!r}")


def register(
    *kinds: Hashable,
    role: Role | str = Role.LAYER,
    kind: str | None = None,
    pointwise: bool = False,
    lift: Callable[[Operation, Tensor, torch.Size], Tensor] | None = None,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a rule for module classes or functions.

        @racecar.rules.register(MyLayer)
        def undo_my_layer(op, y, shape):      # y: the layer's output in the reverse pass
            return (y - op.module.bias) @ op.module.weight     # x', of shape ``shape``

        @racecar.rules.register(MyActivation, role="activation")
        def my_activation_again(op, x):       # x: what reaches it in the reverse pass
            return op.module(x)                                # an activation is applied again, not undone

    A rule of role "norm" or "activation" takes ``(op, x)``, of any other role ``(op, y, shape)``.

    Args:
        kinds: module classes, or functions as the model calls them (``torch.foo``, ``F.foo``, ``torch.Tensor.foo``).
        role: "layer" for an operation with a weight; see :class:`Role` for the others.
        kind: the name shown in plan tables; the function's own by default.
        pointwise, lift: see :class:`Rule`.
    """
    if not kinds:
        raise TypeError("register needs at least one module class or function")
    for one in kinds:
        _check_kind(one)
    checked = Role.of_rule(role)

    def decorate(apply: Callable[..., Tensor]) -> Callable[..., Tensor]:
        for one in kinds:
            _RULES[one] = Rule(checked, kind or label(one), apply, pointwise, lift)
        return apply

    return decorate


def register_plain(role: Role, *kinds: Hashable) -> None:
    """Register kinds whose role says everything (pass, source, select)."""
    for one in kinds:
        _RULES[one] = Rule(role, label(one))


def unregister(*kinds: Hashable) -> None:
    """Take rules out again."""
    for one in kinds:
        _RULES.pop(one, None)


def label(kind: Any) -> str:
    """A short readable name of a function or module class."""
    name = getattr(kind, "__name__", None) or str(kind)
    if name == "__get__":
        name = getattr(getattr(kind, "__self__", None), "__name__", name)
    return name.strip("_") or name
