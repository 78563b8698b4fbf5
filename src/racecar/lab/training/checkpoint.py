"""Checkpoints: whole or not there at all, and read without running anything that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from racecar.support.files import spared, write_atomically


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Put a state into a file; where that fails, it is said, and training goes on."""
    with spared("a checkpoint"), write_atomically(path) as file:
        torch.save(state, file)


@contextmanager
def reading(path: Path) -> Iterator[dict[str, Any]]:
    """What a checkpoint holds, on the CPU; names the file where that is not what was expected."""
    try:
        yield torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        message = f"{path} is no checkpoint that can be read; delete it to start that stage again"
        raise ValueError(message) from error
