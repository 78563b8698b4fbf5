"""Experiments of users, which the command line names as package.module:CLASS."""

from __future__ import annotations

import copyreg
import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from racecar.support.importing import look_up
from racecar_lab.experiment import Experiment
from racecar_lab.incomplete import lacks

NAMES: dict[str, str] = {}
"""Name of a user's experiment → package.module:CLASS, as the user wrote it on the command line."""


def own_experiment(name: str, folder: Path | None = None, reserved: Container[str] = ()) -> Experiment[Any]:
    """An instance of the experiment class package.module:CLASS.

    Args:
        folder: folder in which its module is looked for first; None: the current folder.
        reserved: names of other experiments, which it must not have, because their results would be mixed.
    """
    folder = folder or Path.cwd()
    if not re.fullmatch(r"[^:]+:[^:]+", name):
        raise ValueError(f"unknown experiment {name!r}: one of your own is package.module:CLASS")
    kind = look_up(name, folder, "experiment")
    if not (isinstance(kind, type) and issubclass(kind, Experiment)):
        base = "racecar_lab.experiment.Experiment"
        raise TypeError(f"{name} is no class that inherits from {base}, but {type(kind).__name__}")
    if not getattr(kind, "name", ""):
        raise lacks(kind, "name")
    if not re.fullmatch(r"\w[\w.-]*", kind.name):
        raise ValueError(f"{name} has name = {kind.name!r}: its folder is called so, use letters, digits and hyphens")
    if kind.name in reserved:
        raise ValueError(f"{name} has name = {kind.name!r}, as an experiment of racecar: give it another one")
    try:
        experiment = kind()
    except Exception as error:
        raise ValueError(f"{name}() failed: {type(error).__name__}: {error}") from error
    # Pickled by its name, because workers do not import from the current folder.
    copyreg.pickle(kind, lambda experiment: (own_experiment, (name, folder)))
    NAMES[kind.name] = name
    return experiment
