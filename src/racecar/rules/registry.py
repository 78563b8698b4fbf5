"""The registry of rules: one table from module classes and functions to what the reverse pass does with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from racecar.rules.batch_dim import BatchRule, moves, reduces, stays
from racecar.rules.context import StepMasks
from racecar.rules.mask_rules import MaskRule, by_element, in_place, moved, reduced, unknown
from racecar.rules.operation import Operation, Path
from racecar.rules.roles import Role

UndoFunction = Callable[[Operation, Tensor, torch.Size], Tensor]
"""The function of a rule that undoes an operation: ``(op, y, shape) -> x'``."""


@dataclass(frozen=True, eq=False)
class Rule:
    """All that is known of one kind of operation: its role in a layer, its reverse, its effect on batch and mask."""

    role: Role
    """Where in a layer the operation belongs; a name such as "activation" is converted."""
    kind: str
    """The name shown in plan tables."""
    apply: Callable[..., Tensor] | None = None
    """The function of the rule; its arguments depend on the role (see :class:`Role`)."""
    pointwise: bool = False
    """Whether an activation treats every element separately, so that it may be applied in any layout."""
    lift: UndoFunction | None = None
    """For a resampling that drops dimensions: gives them back with size 1, before norms are applied again."""
    keeps_axes: bool = False
    """Whether a shape or selection keeps the number, order and meaning of the dimensions, as padding and flips do."""
    variant: Callable[[Operation], Rule | None] | None = None
    """Gives the rule for calls of another form, such as c / x, which is not affine; None: this rule."""
    by_vjp: bool = False
    """Whether the rule is the general one for affine operations, their vector-Jacobian product."""
    reapply: UndoFunction | None = None
    """For a change of layout whose arguments may contain the size of the whole batch: the operation on other data x, as
    ``(op, x, shape) -> y`` with the shape of y; None: ``op(x)``."""
    batch: BatchRule | None = None
    """Finds where the samples run in the output (:mod:`racecar.rules.batch_dim`); None: by role and ``lift``."""
    mask: MaskRule | None = None
    """Computes the mask of the output (:mod:`racecar.rules.mask_rules`); None: by role and ``lift``."""
    positions_from: tuple[Path, ...] | None = None
    """For an operation on several tensors: the arguments that determine the positions of its output; None: all."""
    takes_mask: Callable[[Operation, StepMasks], Tensor | None] | None = None
    """Chooses the mask that the rule's function finds in ``op.context``; None: it needs no mask."""
    keeps_statistics: bool = False
    """Whether a norm uses ``op.context.statistics``, as batch norms do."""
    constants_per_sample: bool = False
    """Whether the constants of a shape may have one value per sample, as those of norms, activations and affine
    operations may."""
    elementwise: bool = False
    """Whether the operation works element by element, on one tensor or several: such operations are combined into
    activations and norms that a model spells out."""
    reduction: bool = False
    """Whether the operation is a reduction that can be part of a norm that a model spells out, with ``keepdim``."""
    linear: Callable[[Operation], Operation | None] | None = None
    """For a layer: the operation without its bias, as a linear map; None if the layer cannot be part of a sum of linear
    maps."""
    factor: Callable[[Operation, Path], Any] | None = None
    """For an elementwise operation: what the data at the given place is multiplied by; None if not linear in it."""

    def __post_init__(self) -> None:
        irreversible = self.role in (Role.JOIN, Role.UNKNOWN) and self.apply is None
        object.__setattr__(self, "role", Role(self.role) if irreversible else Role.of_rule(self.role))
        if self.batch is None:
            object.__setattr__(self, "batch", reduces if self.lift is not None else _BATCH_RULES.get(self.role, stays))
        if self.mask is None:
            object.__setattr__(self, "mask", reduced if self.lift is not None else _MASK_RULES.get(self.role, unknown))
        optional = self.role in (Role.PASS, Role.SOURCE) or (self.role is Role.SELECT and self.apply is None)
        if not (irreversible or optional):
            _check_function(self.apply, self.role.arguments, f"the rule of {self.kind}, of role {str(self.role)!r},")
        if self.lift is not None:
            _check_function(self.lift, self.role.arguments, f"lift of {self.kind}")

    def of_module(self) -> Rule:
        """The rule for a module treated as one operation, which cannot be called on a mask."""
        return replace(self, mask=in_place if self.mask in (moved, unknown) else self.mask)


_BATCH_RULES = {Role.SHAPE: moves, Role.SELECT: moves}
_MASK_RULES: dict[Role, MaskRule] = {
    **dict.fromkeys((Role.NORM, Role.ACTIVATION, Role.AFFINE, Role.PASS), by_element),
    **dict.fromkeys((Role.LAYER, Role.RESAMPLE), in_place),
    **dict.fromkeys((Role.SHAPE, Role.SELECT), moved),
}

NO_RULE = Rule(Role.UNKNOWN, "")
"""Stands for the rule of an operation that has none, such as writing into a part of a tensor."""

Rules = Mapping[Hashable, Rule]
"""Module class or function → its rule."""
UserRules = Mapping[Any, Rule | Callable[..., Tensor]]
"""The argument ``rules`` of :class:`racecar.Racecar`: a plain function is the rule of a layer."""

_RULES: dict[Hashable, Rule] = {}


def find(kind: Any, overrides: Rules = MappingProxyType({})) -> Rule | None:
    """The rule of a function, or of a module class or its nearest base; ``overrides`` come before the registry."""
    for candidate in kind.__mro__ if isinstance(kind, type) else (kind,):
        rule = overrides.get(candidate) or _RULES.get(candidate)
        if rule is not None:
            return rule
    return None


def checked_rules(rules: UserRules | None) -> Rules:
    """The argument ``rules`` of :class:`racecar.Racecar`, checked, with plain functions as rules of layers."""
    rules = {} if rules is None else rules
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules must be a dict from module classes or functions to rules, not {type(rules).__name__}")
    checked: dict[Hashable, Rule] = {}
    for kind, rule in rules.items():
        _check_kind(kind)
        if not isinstance(rule, Rule) and not callable(rule):
            raise TypeError(
                f"the rule of {label(kind)} must be a function (op, y, shape) -> x' or a racecar.rules.Rule, "
                f"not {type(rule).__name__}"
            )
        checked[kind] = rule if isinstance(rule, Rule) else Rule(Role.LAYER, label(kind), rule)
    return checked


def _check_function(function: Any, arguments: tuple[str, ...], what: str) -> None:
    """Raise a TypeError if ``function`` cannot be called with ``arguments``; ``what`` is its name in the message."""
    expected = f"{what} must be a function ({', '.join(arguments)})"
    if not callable(function):
        raise TypeError(f"{expected}, not {function!r:.80}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"{expected}, not {name}{signature}: (op, x) is for roles 'norm' and 'activation', "
            "(op, y, shape) for others"
        ) from None


def _check_kind(kind: Any) -> None:
    expected = "a rule is for a module class or a function, not for"
    if isinstance(kind, nn.Module):
        raise TypeError(f"{expected} an instance: give {type(kind).__name__}")
    if not callable(kind) or (isinstance(kind, type) and not issubclass(kind, nn.Module)):
        raise TypeError(f"{expected} {kind!r}")


def register(
    *kinds: Hashable,
    role: Role | str = Role.LAYER,
    kind: str | None = None,
    pointwise: bool = False,
    lift: UndoFunction | None = None,
    **more: Any,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a rule for module classes or functions.

        @racecar.rules.register(MyLayer)
        def undo_my_layer(op, y, shape):      # y: the layer's output in the reverse pass
            return (y - op.module.bias) @ op.module.weight     # x', of shape ``shape``

        @racecar.rules.register(MyActivation, role="activation")
        def my_activation_again(op, x):       # x: the activation's input in the reverse pass
            return op.module(x)                                # an activation is applied again, not undone

    A rule of role "norm" or "activation" takes ``(op, x)``, of any other role ``(op, y, shape)``.

    Args:
        kinds: module classes, or functions as the model calls them (``torch.foo``, ``F.foo``, ``torch.Tensor.foo``).
        role: "layer" for an operation with a weight; see :class:`Role` for the others.
        kind: the name shown in plan tables; by default the name of the class or function.
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
    """Register a rule without a function for each of ``kinds``. ``more``: fields of :class:`Rule`, by name."""
    for kind in kinds:
        _RULES[kind] = Rule(role, label(kind), **more)


def unregister(*kinds: Hashable) -> None:
    """Remove the rules of module classes or functions from the registry."""
    for kind in kinds:
        _RULES.pop(kind, None)


def label(kind: Any) -> str:
    """A short readable name of a function or module class."""
    name = getattr(kind, "__name__", None) or str(kind)
    if name == "__get__":
        name = getattr(getattr(kind, "__self__", None), "__name__", name)
    return name.strip("_") or name
