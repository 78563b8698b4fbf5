"""An experiment of one's own, which the command line names as package.module:CLASS."""

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
"""Name of an experiment → package.module:CLASS, as it was given."""


def own_experiment(name: str, folder: Path | None = None, reserved: Container[str] = ()) -> Experiment[Any]:
    """The experiment that ``name``, package.module:CLASS, stands for.

    Args:
        folder: where its module is looked for before all installed ones; None: the current folder.
        reserved: names of experiments that it may not have, for their results would be mixed.
    """
    folder = folder or Path.cwd()
    if not re.fullmatch(r"[^:]+:[^:]+", name):
        raise ValueError(f"unknown experiment {name!r}: one of your own is package.module:CLASS")
    kind = look_up(name, folder, "experiment")
    if not (isinstance(kind, type) and issubclass(kind, Experiment)):
        base = "racecar_lab.experiment.Experiment"
        raise TypeError(f"{name} is no class that inherits from {base}, but {type(kind).__name__}")
    for part in ("name", "title"):
        if not getattr(kind, part, ""):
            raise lacks(kind, part)
    if not re.fullmatch(r"\w[\w.-]*", kind.name):
        raise ValueError(f"{name} has name = {kind.name!r}: its folder is called so, use letters, digits and hyphens")
    if kind.name in reserved:
        raise ValueError(f"{name} has name = {kind.name!r}, as an experiment of racecar: give it another one")
    try:
        experiment = kind()
    except Exception as error:
        raise ValueError(f"{name}() failed: {type(error).__name__}: {error}") from error
    # Workers import from elsewhere than the current folder: an experiment comes to them by its name.
    copyreg.pickle(kind, lambda experiment: (own_experiment, (name, folder)))
    NAMES[kind.name] = name
    return experiment
