"""Optional packages: imported where they are used, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

from racecar.errors import MissingExtra


def need(module: str, extra: str) -> Any:
    """Import an optional package.

    Args:
        module: its import name, for example "matplotlib.figure".
        extra: racecar's extra that brings it.

    Raises:
        MissingExtra: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is there, and something that it needs is not
        raise MissingExtra(f"this needs {package}: pip install 'racecar-training[{extra}]'") from None
