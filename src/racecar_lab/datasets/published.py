"""Which files of a data set are not the published ones. A file is hashed once: its checksum is kept in the data folder
and holds as long as the file's size and time do."""

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

KEPT = ".racecar-checksums.json"


def other_files(source: Source, folder: str | Path | None) -> dict[str, str]:
    """Path below the data folder → checksum, of the files of a data set that are here and are not what was published,
    or not what was made here. What is missing is left to those who read it."""
    folder = data_folder(folder)
    files: dict[File, None] = {}
    for split in source.counts:
        with suppress(DataError):
            files |= dict.fromkeys(source.find(folder, split))
    kept = _Kept(folder)
    other = {}
    for file in files:
        path, wanted = folder / file.path, wanted_checksum(file, folder)
        if wanted or (file.size is not None and file.size != path.stat().st_size):
            kind = wanted.partition(":")[0]
            if not kind or path.is_dir() != (kind == "git-tree"):
                kind = "git-tree" if path.is_dir() else "sha256"
            checksum = kept.checksum(file.path, kind)
            if checksum != wanted:
                other[file.path] = checksum
    kept.write()
    return other


class _Kept:
    """The checksums that are known of the files in a data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known, self.new = folder, _read(folder / KEPT), False

    def checksum(self, path: str, kind: str) -> str:
        """As "sha256:…"; computed where the file has changed, or was never looked at."""
        stamp = _stamp(self.folder / path)
        known = self.known.get(path, "")
        if not known.startswith(f"{stamp} {kind}:"):
            self.known[path] = known = f"{stamp} {kind}:{digest(self.folder / path, kind)}"
            self.new = True
        return known.removeprefix(f"{stamp} ")

    def write(self) -> None:
        """Keep what is new, unless the folder cannot be written into: then it is computed again next time."""
        if self.new:
            with suppress(OSError):
                write_json(self.folder / KEPT, self.known)


def _read(path: Path) -> dict[str, str]:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(one) for name, one in content.items()} if isinstance(content, dict) else {}


def _stamp(path: Path) -> str:
    """Size and time of a file, or of all files in a folder."""
    if not path.is_dir():
        state = path.stat()
        return f"{state.st_size}-{state.st_mtime_ns}"
    inside = [(str(one.relative_to(path)), _stamp(one)) for one in sorted(path.rglob("*")) if one.is_file()]
    return hashlib.sha256(repr(inside).encode()).hexdigest()
