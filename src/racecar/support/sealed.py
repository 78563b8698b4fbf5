"""State files with a checksum at the end: torch.load checks none, and would take a flipped bit for what was written."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from racecar.support.files import write_atomically

SIZE = hashlib.sha256().digest_size


class Damaged(ValueError):
    """A file's checksum is missing, or does not fit its content."""


def write_sealed(path: Path, state: Any) -> None:
    """Write a state as ``torch.save`` does, with its SHA-256 behind it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with write_atomically(path) as file:
        file.write(buffer.getbuffer())
        file.write(hashlib.sha256(buffer.getbuffer()).digest())


def read_sealed(path: Path) -> Any:
    """Read a state onto the CPU, without running code from the file; ``Damaged`` is raised before anything is unpickled
    if the checksum does not fit."""
    return torch.load(io.BytesIO(_content(path)), map_location="cpu", weights_only=True)


def is_damaged(path: Path) -> bool:
    """Whether the checksum of a file is missing or does not fit."""
    try:
        _content(path)
    except Damaged:
        return True
    return False


def _content(path: Path) -> memoryview:
    whole = memoryview(path.read_bytes())
    content, checksum = whole[:-SIZE], whole[-SIZE:]
    if hashlib.sha256(content).digest() != checksum:
        raise Damaged(f"{path} is damaged: its checksum does not fit")
    return content
