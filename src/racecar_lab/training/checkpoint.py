"""Checkpoints: whole or not there at all, with a checksum, and read without running anything that they hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from racecar.support.files import remove, spared
from racecar.support.sealed import is_damaged, read_sealed, write_sealed


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Put a state into a file; where that fails, it is said, and training goes on."""
    with spared("a checkpoint"):
        write_sealed(path, dict(state))


@contextmanager
def reading(path: Path) -> Iterator[dict[str, Any]]:
    """What a checkpoint holds, on the CPU; names the file where that is not what was expected."""
    try:
        yield read_sealed(path)
    except Exception as error:
        message = f"{path} is no checkpoint that can be read; delete it to start that stage again"
        raise ValueError(message) from error


def drop_damaged(*paths: Path) -> None:
    """Remove those files of an unfinished stage whose checksum does not fit, so that what they held is done again. A
    warning names each. A file from before there were checksums has none, and goes too."""
    for path in paths:
        if path.exists() and is_damaged(path):
            remove(path)
            warnings.warn(
                f"{path} is damaged, its checksum does not fit: it is not used, and its stage starts again",
                stacklevel=2,
            )
