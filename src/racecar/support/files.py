"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

_NUMBERS = re.compile(r"\[\n[-+.\deE,\s]+\]")
"""Lists of numbers, which stand on one line. They begin with a line break, which no string in JSON holds."""


class DiskFull(OSError):
    """No space is left for a file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"No space left for {self.path}: the disk is full; make room, and run the same command again"


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write into, which takes its place under ``path`` when it is complete; folders are made as needed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f"{_unfinished(path)}{secrets.token_hex(8)}.tmp")
    try:
        with naming(path):
            with open(name, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """What goes wrong with a file says with which."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        found = error.__context__ if isinstance(error, RuntimeError) else error  # torch.save hides it there
        if not isinstance(found, OSError):
            raise
        if found.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(str(path)) from error
        if found.errno is not None:  # else it has words of its own
            found.filename = found.filename or str(path)
        raise found from None


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be written into, before the work and not after it: by writing into it. It leaves
    nothing behind, neither a file nor the folder.

    Args:
        folder: the folder; it may be missing yet.
        option: what the user gave it by.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise ValueError(f"{option} {folder}: {there} is not a folder")
    try:
        _try(folder)
    except OSError as error:
        raise ValueError(f"{option} {folder} cannot be written: {error.strerror or error}") from error
    finally:
        for one in missing:
            with suppress(OSError):
                one.rmdir()


def _try(folder: Path) -> None:
    """Write a file, and remove it."""
    path = folder / f"check-{secrets.token_hex(8)}"
    for attempt in range(5):
        try:
            with write_atomically(path) as file:
                file.write(b"racecar" * 1000)
            return path.unlink()
        except FileNotFoundError:  # another command that checks the same folder may have just removed it again
            if attempt == 4:
                raise


@contextmanager
def spared(what: str) -> Iterator[None]:
    """For a file that saves time later, no more: where it cannot be written, that is said, and the work goes on."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{what} was not written, and the work goes on: {error}", stacklevel=3)


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
