"""Checksums of a data set's files, compared with the published ones, or with those written when it was made."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from racecar_lab.datasets.base import DataError, File, Source, data_folder


def digest(path: Path, kind: str) -> str:
    """Checksum of a file ("sha256", "md5") or of a folder ("git-tree"), in hexadecimal."""
    if kind == "git-tree":
        return _git_tree(path).hex()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def remembered_digest(path: Path, kind: str) -> str:
    """Checksum of a file or folder, in hexadecimal. That of a file is computed once for all jobs of a process, as long
    as its size and time stay the same."""
    state = path.stat()
    return digest(path, kind) if path.is_dir() else _file_digest(path, kind, state.st_size, state.st_mtime_ns)


@lru_cache
def _file_digest(path: Path, kind: str, size: int, changed: int) -> str:
    return digest(path, kind)


def _git_tree(folder: Path) -> bytes:
    """The id that git gives a folder all of whose files have mode 755, in bytes."""
    entries = []
    for path in folder.iterdir():
        name = path.name.encode()
        if path.is_dir():
            entries.append((name + b"/", b"40000 " + name, _git_tree(path)))  # git sorts folders as if with a slash
        else:
            entries.append((name, b"100755 " + name, _git_id(b"blob", path.read_bytes())))
    return _git_id(b"tree", b"".join(head + b"\0" + id for _, head, id in sorted(entries)))


def _git_id(kind: bytes, content: bytes) -> bytes:
    """The id that git gives an object, such as a file, of this kind and content, in bytes."""
    return hashlib.sha1(b"%s %d\0" % (kind, len(content)) + content, usedforsecurity=False).digest()


def differs(path: Path, size: int | None, checksum: str) -> str:
    """The difference of a file or folder from the published one, in words; empty if there is none."""
    if not path.exists():
        return "is missing"
    if path.is_dir() != checksum.startswith("git-tree"):
        return f"is a {'folder' if path.is_dir() else 'file'}"
    if size is not None and path.stat().st_size != size:
        actual_size = path.stat().st_size
        return f"has {actual_size} bytes, not {size}{': it is truncated' if actual_size < size else ''}"
    kind, _, wanted = checksum.partition(":")
    if wanted and (actual := digest(path, kind)) != wanted:
        return f"is damaged or another file: its {kind} is {actual}, not {wanted}"
    return ""


@dataclass(frozen=True)
class Checked:
    """The result of a check of a data set's files."""

    problems: tuple[str, ...]
    """One line each: the file, what is wrong, what to do. Empty if the data set is good."""
    notes: tuple[str, ...]
    """Remarks on the data set that are no problems, one line each."""


def check(source: Source, folder: str | Path | None = None) -> Checked:
    """Check a data set: compare sizes and checksums of its files with the wanted ones, and read every split."""
    folder = data_folder(folder)
    problems: dict[str, None] = {}  # ordered sets: splits may share a file
    notes: dict[str, None] = {}
    for split in source.counts:
        try:
            good = True
            for file in source.find(folder, split):
                path, wanted = folder / file.path, wanted_checksum(source, file, folder)
                if source.make is not None:
                    notes[f"made here, {wanted}" if wanted else f"{path.name} has no checksum beside it"] = None
                elif not wanted:
                    notes[f"{path.name} has no published checksum"] = None
                if difference := differs(path, file.size, wanted):
                    if path.is_dir() and not file.exact:
                        notes[f"{path.name} holds other pictures than the published ones, which will do"] = None
                    else:
                        problems[f"{path} {difference}: {source.remedy(folder)}"] = None
                        good = False
            if good:
                source.load(folder, split)
        except DataError as error:
            problems[str(error)] = None
    return Checked(tuple(problems), tuple(notes))


def wanted_checksum(source: Source, file: File, folder: Path) -> str:
    """The checksum that a file should have: the published one, or the one written when it was made; empty if there is
    none."""
    if source.make is None:
        return file.checksum
    try:
        return f"sha256:{checksum_file(folder / file.path).read_text(errors='replace').split()[0]}"
    except (OSError, IndexError):
        return ""


def checksum_file(path: Path) -> Path:
    """The file that holds the checksum of a file that was made here."""
    return path.with_name(f"{path.name}.sha256")


def other_files(source: Source, folder: str | Path | None) -> dict[str, str]:
    """The files of a data set that differ from the published ones, or, if the data set is made here, that were changed
    since: path below the data folder → actual checksum. Missing files are left out; reading them raises an error."""
    folder = data_folder(folder)
    other = {}
    for split in source.counts:
        with suppress(DataError):
            for file in source.find(folder, split):
                path, wanted = folder / file.path, wanted_checksum(source, file, folder)
                if wanted or (file.size is not None and path.stat().st_size != file.size):
                    kind = "git-tree" if path.is_dir() else "md5" if wanted.startswith("md5") else "sha256"
                    checksum = f"{kind}:{remembered_digest(path, kind)}"
                    if checksum != wanted:
                        other[file.path] = checksum
    return other
