"""States in files that end with a checksum: torch.load looks at none, and a bit that has flipped would be taken for
what was written."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from racecar.support.files import write_atomically

SIZE = hashlib.sha256().digest_size


class Damaged(ValueError):
    """The checksum at the end of a file is not that of what stands before it, or there is none."""


def write_sealed(path: Path, state: Any) -> None:
    """What ``torch.save`` makes of a state, and after it the SHA-256."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with write_atomically(path) as file:
        file.write(buffer.getbuffer())
        file.write(hashlib.sha256(buffer.getbuffer()).digest())


def read_sealed(path: Path) -> Any:
    """The state in a file, on the CPU, read without running anything that it holds; ``Damaged`` before it is looked at
    where the checksum does not fit."""
    return torch.load(io.BytesIO(_content(path)), map_location="cpu", weights_only=True)


def is_damaged(path: Path) -> bool:
    """Whether the checksum of a file does not fit."""
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
