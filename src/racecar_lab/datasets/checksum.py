"""Checksums of files and folders, and comparison with published ones."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(path: Path, kind: str) -> str:
    """Checksum of a file ("sha256", "md5") or of a folder ("git-tree"), in hexadecimal."""
    if kind == "git-tree":
        return _git_tree(path).hex()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def checksum_file(path: Path) -> Path:
    """The file that holds the checksum of a file that was made here."""
    return path.with_name(f"{path.name}.sha256")


def written_checksum(path: Path) -> str:
    """The checksum of a file that was made here, "sha256:…"; empty if there is none."""
    try:
        return f"sha256:{checksum_file(path).read_text(errors='replace').split()[0]}"
    except (OSError, IndexError):
        return ""


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


def _git_tree(folder: Path) -> bytes:
    """The id of a folder in git, if all of its files have mode 755."""
    entries = []
    for path in folder.iterdir():
        name = path.name.encode()
        if path.is_dir():
            entries.append((name + b"/", b"40000 " + name, _git_tree(path)))  # git sorts folders as if with a slash
        else:
            entries.append((name, b"100755 " + name, _git_id(b"blob", path.read_bytes())))
    return _git_id(b"tree", b"".join(head + b"\0" + id for _, head, id in sorted(entries)))


def _git_id(kind: bytes, content: bytes) -> bytes:
    """The id of an object in git."""
    return hashlib.sha1(b"%s %d\0" % (kind, len(content)) + content, usedforsecurity=False).digest()
