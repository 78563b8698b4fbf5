"""Settings of an experiment: a frozen dataclass, and how a user changes a field of it."""

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
"""The largest whole number of any setting: a larger one is a slip, and a training of so many epochs would not end."""
Schedule = Literal["constant", "cosine", "onecycle"]
"""How the step size goes: as it is; to 0 along a cosine; up to it and then to nearly 0, as torch's OneCycleLR."""


def guide(default: V) -> V:
    """A field that says which runs to make, and nothing about any of them."""
    return field(default=default, metadata={"guide": True})


@dataclass(frozen=True, kw_only=True)
class Config:
    """What every experiment can be told; experiments add their own fields and set the paper's values."""

    unnamed: ClassVar[Mapping[str, Any]] = {"weight_decay": 0.0, "pretrain_lr": 0.0, "every": 1}
    """Fields that the name of a result leaves out at these values: they came when there were results without them,
    whose names stay."""
    epochs: int = 10
    """Of the regularised phase."""
    lr: float = 1e-4
    batch: int = 0
    """Samples in a batch; 0: all of them."""
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    momentum: float = 0.9
    """Of sgd."""
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    """Of the optimiser, in every stage; decoupled in adamw. That of variant WD comes on top."""
    pretrain_lr: float = 0.0
    """Of the pretraining that variant Pre begins with; 0: ``lr``."""
    clip: float = 0.0
    """Largest norm of the gradient; 0: no limit."""
    ema: float = 0.0
    """Decay of a moving average of the weights, which is then what is measured; 0: none."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    fraction: float = 1.0
    """Share of each batch that the reverse pass sees."""
    every: int = 1
    """The reverse pass is on in every so-many-th step, with as many times the coefficient."""
    valid: float = 0.0
    """Share of the training set held out, for choosing coefficients and learning rates."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, float) and not math.isfinite(one):  # no record can hold it
                    raise ValueError(f"{f.name} must be a finite number, not {one!r}")
                if isinstance(one, int) and one > MOST:
                    raise ValueError(f"{f.name} must be at most {MOST:,}, not {one!r}")
        kind: Any = type(self)  # mypy doubts that a class can be hashed
        for name, known in choices(kind).items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(str, known))}, not {getattr(self, name)!r}")
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
        for name in names:
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], not {getattr(self, name)!r}")

    def refuse_negative(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)!r}")

    def to_dict(self) -> dict[str, Any]:
        """Every field, ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_record(self) -> dict[str, Any]:
        """What a record holds: every field but those that only say which runs to make."""
        left_out = guides(type(self))
        return {name: value for name, value in self.to_dict().items() if name not in left_out}

    def to_name(self) -> dict[str, Any]:
        """What names a result: every field, except ``unnamed`` ones at their values."""
        same = {name for name, value in self.unnamed.items() if getattr(self, name) == value}
        return {name: value for name, value in self.to_dict().items() if name not in same}


def guides(config: type[Config]) -> set[str]:
    """Fields that say which runs to make, also where a subclass gives them another default."""
    kinds = [kind for kind in config.__mro__ if issubclass(kind, Config)]
    return {f.name for kind in kinds for f in fields(kind) if "guide" in f.metadata}


@cache
def _hints(config: type[Config]) -> dict[str, Any]:
    """The types of the fields: they are written as text, which is read once."""
    hints = typing.get_type_hints(config)
    return {f.name: hints[f.name] for f in fields(config)}


@cache
def choices(config: type[Config]) -> dict[str, tuple[Any, ...]]:
    """Fields that have one of a few values, as their type says."""
    hints = _hints(config)  # type: ignore[arg-type]
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


C = TypeVar("C", bound=Config)


def override(config: C, assignments: Iterable[str]) -> C:
    """Change fields, each given as "name=value"; names and types are checked."""
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
    """A value of the type that a field has."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in inner and text.lower() in ("none", "null", ""):
            return None
        (hint,) = [one for one in inner if one is not type(None)]
        return parse(text, hint, name)
    if origin is Literal:
        return next((one for one in inner if str(one) == text), text)  # any other is refused with the rest
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
    """The fields that differ from their defaults."""
    default = type(config)()
    return {
        f.name: getattr(config, f.name) for f in fields(config) if getattr(config, f.name) != getattr(default, f.name)
    }
