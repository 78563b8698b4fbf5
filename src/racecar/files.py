"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

_NUMBERS = re.compile(r"\[\n[-+.\deE,\s]+\]")
"""Lists of numbers, which stand on one line. They begin with a line break, which no string in JSON holds."""


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write into, which takes its place under ``path`` when it is complete; folders are made as needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f"{_unfinished(path)}{secrets.token_hex(8)}.tmp")
    try:
        with open(name, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


def remove(path: Path) -> None:
    """Remove a file, if it is there, with what a process that was killed while it wrote it has left."""
    path.unlink(missing_ok=True)
    for left in path.parent.glob(f"{escape(_unfinished(path))}*.tmp"):
        left.unlink(missing_ok=True)


def _unfinished(path: Path) -> str:
    """How files begin that are not complete yet; names may have 255 bytes."""
    return f".{path.name[:50]}."


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Text, in UTF-8."""
    with write_atomically(path) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """JSON that people can read; infinite numbers and NaN, which JSON does not know, are refused."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, _NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n")
