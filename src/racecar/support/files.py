"""Write files that are complete or not there at all."""

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
"""Lists of numbers, to be put on one line. They begin with a line break, which no string in JSON contains."""


class DiskFull(OSError):
    """No space is left for a file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"No space left for {self.path}: the disk is full; make room, and run the same command again"


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Context manager: a file to write into, which is renamed to ``path`` at the end. Missing folders are created."""
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
    """Context manager: errors about a file name its path, and a full disk raises ``DiskFull``."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = error.__context__ if isinstance(error, RuntimeError) else error  # torch.save hides it there
        if not isinstance(cause, OSError):
            raise
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(str(path)) from error
        if cause.errno is not None:  # else its message was written by hand
            cause.filename = cause.filename or str(path)
        raise cause from None


def check_folder(folder: Path, option: str) -> None:
    """Raise ``ValueError`` if a folder cannot be written into, so that a command fails before its work and not after.

    A file is written and removed again, and so are folders that were missing.

    Args:
        folder: the folder; it need not exist.
        option: the command-line option that named it, for the message.
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
    """Write a file into a folder, and remove it."""
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
    """Context manager to write a file that only saves time later: a failure becomes a warning."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{what} was not written, and the work goes on: {error}", stacklevel=3)


def remove(path: Path) -> None:
    """Remove a file, if it exists, and incomplete copies that were left by processes killed while they wrote it."""
    path.unlink(missing_ok=True)
    for unfinished in path.parent.glob(f"{escape(_unfinished(path))}*.tmp"):
        unfinished.unlink(missing_ok=True)


def _unfinished(path: Path) -> str:
    """How the names of incomplete copies of a file begin; a name may have 255 bytes."""
    return f".{path.name[:50]}."


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8."""
    with write_atomically(path) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON, indented for readers; infinite numbers and NaN, which JSON does not have, raise ``ValueError``."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, _NUMBERS.sub(lambda match: " ".join(match[0].split()), text) + "\n")
