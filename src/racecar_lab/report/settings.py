"""Settings: the values of those fields in which the configurations of an experiment's runs differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from racecar_lab.training.loss_config import LOSS, loss_name

Setting = tuple[tuple[str, Any], ...]
"""Names and values of configuration fields."""


def differing(configs: Sequence[Mapping[str, Any]], but: Collection[str] = ()) -> list[Setting]:
    """For each configuration, its values of the fields that are not the same in all; fields in ``but`` are left out."""
    names = dict.fromkeys(name for config in configs for name in config if name not in but)
    values = {name: [plain(config.get(name)) for config in configs] for name in names}
    varying = [name for name in names if len(set(values[name])) > 1]
    return [tuple((name, values[name][i]) for name in varying) for i in range(len(configs))]


def without(setting: Setting, names: Collection[str]) -> Setting:
    """A setting without the fields of these names."""
    return tuple((name, value) for name, value in setting if name not in names)


def only(setting: Setting, names: Collection[str]) -> Setting:
    """The fields of these names from a setting."""
    return tuple((name, value) for name, value in setting if name in names)


def has(config: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """True if a configuration has the values ``where``, name → value; a frozenset allows any of its members."""
    return all(
        name in config and plain(config[name]) in (wanted if isinstance(wanted, frozenset) else [plain(wanted)])
        for name, wanted in where.items()
    )


def label(setting: Setting) -> str:
    """A setting in words, such as "net = linear, sizes = 784 128 2"."""
    return ", ".join(f"{name} = {_text(value)}" for name, value in with_loss(setting))


def with_loss(setting: Setting) -> Setting:
    """A setting in which the fields of the reverse loss are replaced by one, ("loss", name), if it has all of them and
    this loss has a name; otherwise unchanged."""
    loss = loss_name(dict(setting)) if set(LOSS) <= dict(setting).keys() else None
    return setting if loss is None else (*without(setting, LOSS), ("loss", loss))


def plain(value: Any) -> Any:
    """A value of a configuration in a form for comparisons: hashable, and the same before and after JSON."""
    if isinstance(value, dict):
        return tuple(sorted((name, plain(part)) for name, part in value.items()))
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value)) or "none"
    return "not set" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
