"""Racecar training: networks whose features generalise, and that people can look into."""

import sys

if (
    sys.argv[:1] == ["-m"]  # while Python looks for the module that it is to run
    and sys.orig_argv[-len(sys.argv)].endswith("racecar.cli")
    and not sys.flags.safe_path
    and __file__.replace("\\", "/") != f"{sys.path[0]}/racecar/__init__.py".replace("\\", "/")
):
    del sys.path[0]  # the current folder: the command imports nothing from it, unless it lies there itself

from importlib import import_module
from typing import TYPE_CHECKING, Any

from racecar.errors import (
    DeadLayerWarning,
    MissingExtra,
    NoRuleWarning,
    NothingToReverse,
    NotReversible,
    RuleError,
    Unsupported,
)

if TYPE_CHECKING:
    from racecar import functional, orthogonality, presets, rules
    from racecar.every import Every
    from racecar.gradient_share import GradientShare
    from racecar.inversion import invert
    from racecar.racecar import Racecar

__version__ = "0.1.0"
__all__ = [
    "DeadLayerWarning",
    "Every",
    "GradientShare",
    "MissingExtra",
    "NoRuleWarning",
    "NotReversible",
    "NothingToReverse",
    "Racecar",
    "RuleError",
    "Unsupported",
    "functional",
    "invert",
    "orthogonality",
    "presets",
    "rules",
]

_HOMES = {"Every": "every", "GradientShare": "gradient_share", "Racecar": "racecar", "invert": "inversion"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing torch takes seconds, which ``racecar --help`` does not need, and in
    which the workers of ``racecar run`` can start."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    value = globals()[name] = getattr(module, name) if name in _HOMES else module
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
