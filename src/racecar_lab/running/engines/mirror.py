"""What happens in a folder of results, to be repeated in another one: the two need no disk in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from racecar.support.files import remove, spared, write_atomically

KINDS = ("checkpoints", "records", "weights", "arrays", "tensorboard")
"""A stage that ends writes its weights and arrays, then its record, and removes its checkpoint. Looked at in the
opposite order, what a record stands for is never missed, nor the record of a checkpoint that is gone."""


@dataclass(frozen=True)
class Changes:
    """Files that are new or other than before, and files that are there no longer; by their path in the folder."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    gone: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.gone)

    def repeat(self, folder: Path) -> None:
        """In another folder, such that it is whole at every moment: records come after all else, then files go."""
        for name in sorted(self.files, key=lambda name: name.startswith("records")):
            dispensable = name.startswith("checkpoints")
            with spared("a checkpoint") if dispensable else nullcontext(), write_atomically(folder / name) as file:
                file.write(self.files[name])
        for name in self.gone:
            remove(folder / name)


class Mirror:
    """Sees what changes in a folder while others write into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = self._look()

    def changes(self) -> Changes:
        """Since the last time."""
        now, files = self._look(), {}
        for name, state in now.items():
            if self._known.get(name) != state:
                with suppress(FileNotFoundError):  # it went meanwhile; then it is gone next time
                    files[name] = (self.folder / name).read_bytes()
        gone = [name for name in self._known if name not in now]
        self._known = now
        return Changes(files, gone)

    def _look(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for kind in KINDS:
            for path in sorted((self.folder / kind).rglob("*")):
                with suppress(FileNotFoundError):
                    if path.is_file() and not path.name.startswith("."):  # those are not complete yet
                        state = path.stat()
                        name = path.relative_to(self.folder).as_posix()
                        found[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
        return found
