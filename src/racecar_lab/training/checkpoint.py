"""Checkpoints: files written atomically, with a checksum, and read without executing anything that they hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from racecar.support.files import remove, spared
from racecar.support.sealed import is_damaged, read_sealed, write_sealed


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a training into a checkpoint file. If that fails, a warning says so and the training
    continues."""
    with spared("a checkpoint"):
        write_sealed(path, dict(state))


@contextmanager
def reading(path: Path) -> Iterator[dict[str, Any]]:
    """A context with the content of a checkpoint, on the CPU. An error in it becomes one that names the file."""
    try:
        yield read_sealed(path)
    except Exception as error:
        message = f"{path} is no checkpoint that can be read; delete it to start that stage again"
        raise ValueError(message) from error


def drop_damaged(*paths: Path) -> None:
    """Remove those checkpoint files of an unfinished stage whose checksum is missing or wrong, with a warning for each;
    the stage then starts again."""
    for path in paths:
        if path.exists() and is_damaged(path):
            remove(path)
            warnings.warn(
                f"{path} is damaged, its checksum does not fit: it is not used, and its stage starts again",
                stacklevel=2,
            )
