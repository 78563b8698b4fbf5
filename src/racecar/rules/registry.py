"""One table that says what to do with each kind of operation in the reverse pass.

A rule has a role, which says where in a layer the operation belongs: see :class:`racecar.rules.Role`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from racecar.rules.batch_dim import BatchWay, moves, reduces, stays
from racecar.rules.context import StepMasks
from racecar.rules.marks import MaskWay, by_element, in_place, moved, reduced, unknown
from racecar.rules.operation import Operation, Path
from racecar.rules.roles import Role


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
    again: Callable[[Operation, Tensor, torch.Size], Tensor] | None = None
    """For a change of layout whose own arguments may name the whole batch: the operation on other data x, as
    ``(op, x, shape) -> y`` with the shape of y; None: ``op(x)``."""
    batch: BatchWay | None = None
    """Where the samples run in what it makes (:mod:`racecar.rules.batch_dim`); None: as its role and ``lift`` say."""
    mask: MaskWay | None = None
    """Which positions of what it makes count (:mod:`racecar.rules.marks`); None: as its role and ``lift`` say."""
    leads: tuple[Path, ...] | None = None
    """Of an operation on several tensors, the arguments that say what the positions of its output are; None: all."""
    takes_mask: Callable[[Operation, StepMasks], Tensor | None] | None = None
    """The mask that its function finds in ``op.context``; None: none."""
    elementwise: bool = False
    """Element by element of one tensor or several: it may be part of an activation or a norm written by hand."""
    reduction: bool = False
    """To one number: it may be part of a norm written by hand, if it keeps its dimension."""
    linear: Callable[[Operation], Operation | None] | None = None
    """Of a layer, the operation as a linear map, without its bias; None where it is none, or its function takes the
    bias out by itself."""
    factor: Callable[[Operation, Path], Any] | None = None
    """Of an operation by element, what the data at a place is multiplied by; None where it is no linear map of it."""

    def __post_init__(self) -> None:
        irreversible = self.role in (Role.JOIN, Role.UNKNOWN) and self.apply is None
        object.__setattr__(self, "role", Role(self.role) if irreversible else Role.of_rule(self.role))
        if self.batch is None:
            object.__setattr__(self, "batch", reduces if self.lift is not None else _BATCH.get(self.role, stays))
        if self.mask is None:
            object.__setattr__(self, "mask", reduced if self.lift is not None else _MASK.get(self.role, unknown))
        needs_none = self.role in (Role.PASS, Role.SOURCE) or (self.role is Role.SELECT and self.apply is None)
        if not (irreversible or needs_none):
            _check_function(self.apply, self.role.arguments, f"the rule of {self.kind}, of role {str(self.role)!r},")
        if self.lift is not None:
            _check_function(self.lift, self.role.arguments, f"lift of {self.kind}")

    def of_module(self) -> Rule:
        """The same for a module taken as one operation, which cannot be called on sample numbers or a mask."""
        batch = stays if self.batch is moves else self.batch
        return replace(self, batch=batch, mask=in_place if self.mask in (moved, unknown) else self.mask)


_BATCH = {Role.SHAPE: moves, Role.SELECT: moves}
_MASK: dict[Role, MaskWay] = {
    **dict.fromkeys((Role.NORM, Role.ACTIVATION, Role.AFFINE, Role.PASS), by_element),
    **dict.fromkeys((Role.LAYER, Role.RESAMPLE), in_place),
    **dict.fromkeys((Role.SHAPE, Role.SELECT), moved),
}

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
    **more: Any,
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
        pointwise, lift, more: the other fields of :class:`Rule`, by name.
    """
    if not kinds:
        raise TypeError("register needs at least one module class or function")
    for one in kinds:
        _check_kind(one)
    checked = Role.of_rule(role)

    def decorate(apply: Callable[..., Tensor]) -> Callable[..., Tensor]:
        for one in kinds:
            _RULES[one] = Rule(checked, kind or label(one), apply, pointwise, lift, **more)
        return apply

    return decorate


def register_plain(role: Role, *kinds: Hashable, **more: Any) -> None:
    """Register kinds that have no function. ``more``: fields of :class:`Rule`."""
    for one in kinds:
        _RULES[one] = Rule(role, label(one), **more)


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
