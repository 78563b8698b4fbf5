"""The settings that all experiments have, as a frozen dataclass, and changes of its fields by texts such as
"lr=1e-3"."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

V = TypeVar("V")
MOST = 10**9
"""Maximal value of integer settings: a larger one is probably a typing error, and such a training would never end."""
Schedule = Literal["constant", "cosine", "onecycle"]
"""Learning rate over the training: constant; down to 0 along a cosine; or up and then down to nearly 0, as in torch's
OneCycleLR."""


def guide(default: V) -> V:
    """A dataclass field with this default that determines which runs a command makes, but is no setting of any single
    run, so that records leave it out."""
    return field(default=default, metadata={"guide": True})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings that all experiments have; experiments add fields, and set the paper's values."""

    unnamed: ClassVar[Mapping[str, Any]] = {"weight_decay": 0.0, "pretrain_lr": 0.0, "every": 1}
    """Name of a field → the value at which it is left out of the text that a result's id is computed from. These fields
    were added later, and the ids of earlier results must not change."""
    stackable: ClassVar[tuple[str, ...]] = ("lr", "weight_decay")
    """Fields that change only the optimiser's step, λ or the initial weights, so that nets that differ in them can be
    trained as one batched net."""
    epochs: int = 10
    """Number of epochs of a stage, unless the stage has its own."""
    lr: float = 1e-4
    batch: int = 0
    """Number of samples in a batch; 0: all of the training set."""
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    momentum: float = 0.9
    """Momentum of sgd."""
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    """Weight decay of the optimiser in every stage, decoupled in adamw; that of variant WD is added."""
    pretrain_lr: float = 0.0
    """Learning rate of the pretraining of variant Pre; 0: ``lr``."""
    clip: float = 0.0
    """Maximal norm of the gradient; 0: no limit."""
    ema: float = 0.0
    """Decay of a moving average of the weights, which is measured instead of the weights; 0: none."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    fraction: float = 1.0
    """Share of each batch that the reverse pass sees."""
    every: int = 1
    """Number of training steps from one reverse pass to the next; 1: each step has one. λ is multiplied by it."""
    valid: float = 0.0
    """Share of the training set that is held out, for choosing λ and learning rates."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float) and not math.isfinite(number):  # records cannot hold it
                    raise ValueError(f"{f.name} must be a finite number, not {number!r}")
                if isinstance(number, int) and number > MOST:
                    raise ValueError(f"{f.name} must be at most {MOST:,}, not {number!r}")
        kind: Any = type(self)  # Any, because mypy does not take classes as hashable
        for name, allowed in choices(kind).items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, not {getattr(self, name)!r}")
        if self.every < 1:
            raise ValueError(f"every must be at least 1, not {self.every!r}")
        for name in ("epochs", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")
        self.refuse_negative("batch", "clip", "momentum", "weight_decay", "pretrain_lr")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be in [0, 1), not {self.ema!r}")
        if not 0 <= self.valid < 1:
            raise ValueError(f"valid must be in [0, 1), not {self.valid!r}")
        self.refuse_no_part("fraction")

    def refuse_no_part(self, *names: str) -> None:
        """Raise a ValueError if one of these fields, each a share, is not in (0, 1]."""
        for name in names:
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], not {getattr(self, name)!r}")

    def refuse_negative(self, *names: str) -> None:
        """Raise a ValueError if one of these fields is negative."""
        for name in names:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)!r}")

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, with lists instead of tuples, as JSON has them."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_record(self) -> dict[str, Any]:
        """The fields that a record keeps, by name: all but those that only determine which runs are made."""
        left_out = guides(type(self))
        return {name: value for name, value in self.to_dict().items() if name not in left_out}

    def to_name(self) -> dict[str, Any]:
        """The fields from which a result's id is computed, by name: all but those that have their value in
        ``unnamed``."""
        left_out = {name for name, value in self.unnamed.items() if getattr(self, name) == value}
        return {name: value for name, value in self.to_dict().items() if name not in left_out}


def guides(config: type[Config]) -> set[str]:
    """Names of the fields that only determine which runs are made, also if a subclass changes their defaults."""
    kinds = [kind for kind in config.__mro__ if issubclass(kind, Config)]
    return {f.name for kind in kinds for f in fields(kind) if "guide" in f.metadata}


@cache
def _hints(config: type[Config]) -> dict[str, Any]:
    """Field name → its type. Cached, because annotations are texts that must be evaluated."""
    hints = typing.get_type_hints(config)
    return {f.name: hints[f.name] for f in fields(config)}


@cache
def choices(config: type[Config]) -> dict[str, tuple[Any, ...]]:
    """Fields whose type is Literal → their allowed values."""
    hints = _hints(config)  # type: ignore[arg-type]
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


C = TypeVar("C", bound=Config)


def override(config: C, assignments: Iterable[str]) -> C:
    """A configuration with changed fields, each a text "name=value"; names and types are checked."""
    hints = _hints(type(config))  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals:
            raise ValueError(f"{assignment!r} is no setting: write name=value, for example lr=1e-3")
        if name not in hints:
            close = get_close_matches(name, hints, n=1)
            known = f"did you mean {close[0]!r}?" if close else f"the settings are: {', '.join(sorted(hints))}"
            raise ValueError(f"no setting {name!r}; {known}")
        changes[name] = parse(text.strip(), hints[name], name)
    return replace(config, **changes)


def parse(text: str, hint: Any, name: str) -> Any:
    """Convert a text such as "1e-3" to a field's type; a ValueError says what the field needs.

    Args:
        hint: the type.
        name: name of the field, for errors.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in inner and text.lower() in ("none", "null", ""):
            return None
        (hint,) = [kind for kind in inner if kind is not type(None)]
        return parse(text, hint, name)
    if origin is Literal:
        return next((value for value in inner if str(value) == text), text)  # others are refused by Config
    if origin is tuple:
        return tuple(parse(part.strip(), inner[0], name) for part in text.split(",") if part.strip())
    try:
        if hint is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if hint is int:
            return int(text)
        if hint is float:
            return float(text)
    except (KeyError, ValueError):
        raise ValueError(f"{name} must be of type {hint.__name__}, not {text!r:.80}") from None
    return text


def changed(config: Config) -> dict[str, Any]:
    """The fields whose values differ from their defaults: name → value."""
    default = type(config)()
    return {
        f.name: getattr(config, f.name) for f in fields(config) if getattr(config, f.name) != getattr(default, f.name)
    }
