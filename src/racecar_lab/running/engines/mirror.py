"""Copies the changes of a results folder to another one, for machines without a common disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from racecar.support.files import remove, spared, write_atomically

KINDS = ("checkpoints", "records", "weights", "arrays", "tensorboard")
"""Subfolders of a results folder that are observed, in the order in which they are looked at. A stage that ends writes
weights and arrays, then its record, and then removes its checkpoint; looking in the opposite order never misses the
files of a record that is seen, nor the record of a checkpoint that is gone."""


@dataclass(frozen=True)
class Changes:
    """Changes of a results folder: path → content of files that are new or changed, and paths of files that were
    removed."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    gone: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.gone)

    def repeat(self, folder: Path) -> None:
        """Repeat the changes in another folder. Records are written last, then files are removed, so that the folder is
        consistent at every moment."""
        for name in sorted(self.files, key=lambda name: name.startswith("records")):
            dispensable = name.startswith("checkpoints")
            with spared("a checkpoint") if dispensable else nullcontext(), write_atomically(folder / name) as file:
                file.write(self.files[name])
        for name in self.gone:
            remove(folder / name)


class Mirror:
    """Observes a results folder that others write into, to tell which of its files change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = self._look()

    def changes(self) -> Changes:
        """The changes of the folder since the last call, or for the first call since the start."""
        current, files = self._look(), {}
        for name, state in current.items():
            if self._known.get(name) != state:
                with suppress(FileNotFoundError):  # removed meanwhile; the next call reports that
                    files[name] = (self.folder / name).read_bytes()
        gone = [name for name in self._known if name not in current]
        self._known = current
        return Changes(files, gone)

    def _look(self) -> dict[str, tuple[int, int, int]]:
        """Path in the folder → time of change, size and inode, for every file."""
        states = {}
        for kind in KINDS:
            for path in sorted((self.folder / kind).rglob("*")):
                with suppress(FileNotFoundError):
                    if path.is_file() and not path.name.startswith("."):  # files that are still being written
                        state = path.stat()
                        name = path.relative_to(self.folder).as_posix()
                        states[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
        return states
