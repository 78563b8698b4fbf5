"""Finds the files of a data set that are not the published ones. Checksums are cached in the data folder, and computed
again if size or time of a file changes."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from racecar.support.files import write_json
from racecar_lab.datasets.base import DataError, File, Source, data_folder
from racecar_lab.datasets.checking import wanted_checksum
from racecar_lab.datasets.checksum import digest

CACHE = ".racecar-checksums.json"
"""Name of the file with the cached checksums."""


def other_files(source: Source, folder: str | Path | None) -> dict[str, str]:
    """Path below the data folder → checksum, for the files of a data set that differ from the published ones, or from
    those that were made here. Missing files are ignored; reading them raises an error."""
    folder = data_folder(folder)
    files: dict[File, None] = {}
    for split in source.counts:
        with suppress(DataError):
            files |= dict.fromkeys(source.find(folder, split))
    cache = _Checksums(folder)
    other = {}
    for file in files:
        path, wanted = folder / file.path, wanted_checksum(file, folder)
        if wanted or (file.size is not None and file.size != path.stat().st_size):
            kind = wanted.partition(":")[0]
            if not kind or path.is_dir() != (kind == "git-tree"):
                kind = "git-tree" if path.is_dir() else "sha256"
            checksum = cache.checksum(file.path, kind)
            if checksum != wanted:
                other[file.path] = checksum
    cache.write()
    return other


class _Checksums:
    """The cached checksums of the files in a data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known, self.new = folder, _read(folder / CACHE), False

    def checksum(self, path: str, kind: str) -> str:
        """A checksum such as "sha256:…"; it is computed if the file is new or has changed."""
        stamp = _stamp(self.folder / path)
        known = self.known.get(path, "")
        if not known.startswith(f"{stamp} {kind}:"):
            self.known[path] = known = f"{stamp} {kind}:{digest(self.folder / path, kind)}"
            self.new = True
        return known.removeprefix(f"{stamp} ")

    def write(self) -> None:
        """Write new checksums into the cache file, if the folder is writable."""
        if self.new:
            with suppress(OSError):
                write_json(self.folder / CACHE, self.known)


def _read(path: Path) -> dict[str, str]:
    """The content of the cache file; empty if it cannot be read."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in content.items()} if isinstance(content, dict) else {}


def _stamp(path: Path) -> str:
    """Size and time of a file, or of all files in a folder."""
    if not path.is_dir():
        state = path.stat()
        return f"{state.st_size}-{state.st_mtime_ns}"
    stamps = [(str(file.relative_to(path)), _stamp(file)) for file in sorted(path.rglob("*")) if file.is_file()]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()
