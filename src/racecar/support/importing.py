"""Import what a user names as package.module:attribute, also from the folder that a command is given in."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

added: set[str] = set()
"""Folders that ``look_up`` has put at the end of ``sys.path``."""


def look_up(name: str, folder: Path, what: str) -> Any:
    """The object that ``name``, package.module:attribute, stands for.

    The package is imported from ``folder`` first. All that it imports is looked for there last, so that a file in the
    folder cannot replace an installed package.

    Args:
        what: the kind of object, as "target", for messages.

    Raises:
        ImportError: there is no such module, or it cannot be imported.
        ValueError: the module has no such attribute.
    """
    module_name, _, attribute = name.partition(":")
    with _folder_first(module_name.partition(".")[0], folder):
        value: Any = imported(module_name, f"unknown {what} {name!r}: there is no module {module_name!r}")
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ValueError(f"unknown {what} {name!r}: {module_name} has no {attribute!r}")
        value = getattr(value, part)
    return value


def imported(module: str, missing: str) -> ModuleType:
    """Import a module; ``missing`` is the error if it is not there, as opposed to broken."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ImportError(missing) from error
        raise ImportError(f"importing {module} failed: {type(error).__name__}: {error}") from error


class _FolderFinder:
    """An import finder (for ``sys.meta_path``) for one package or module in one folder."""

    def __init__(self, package: str, folder: str) -> None:
        self.package, self.folder = package, folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self.folder]) if name == self.package else None


@contextmanager
def _folder_first(package: str, folder: Path) -> Iterator[None]:
    """A context in which ``package`` is imported from the folder first, and all other packages from there last."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        added.add(str(folder))
    finder = _FolderFinder(package, str(folder))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
