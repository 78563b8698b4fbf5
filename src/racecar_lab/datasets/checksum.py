"""Checksums of files and folders, and whether a file is what was published."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(path: Path, kind: str) -> str:
    """Checksum of a file ("sha256", "md5") or of a folder ("git-tree"), in hexadecimal."""
    if kind == "git-tree":
        return _git_tree(path).hex()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def beside(path: Path) -> Path:
    """Where the checksum of a file stands that was made here."""
    return path.with_name(f"{path.name}.sha256")


def written(path: Path) -> str:
    """The checksum that was written beside a file, "sha256:…"; empty if there is none."""
    try:
        return f"sha256:{beside(path).read_text(errors='replace').split()[0]}"
    except (OSError, IndexError):
        return ""


def differs(path: Path, size: int | None, checksum: str) -> str:
    """What tells a file or folder from the published one, in words; empty if nothing does."""
    if not path.exists():
        return "is missing"
    if path.is_dir() != checksum.startswith("git-tree"):
        return f"is a {'folder' if path.is_dir() else 'file'}"
    if size is not None and path.stat().st_size != size:
        have = path.stat().st_size
        return f"has {have} bytes, not {size}{': it is truncated' if have < size else ''}"
    kind, _, wanted = checksum.partition(":")
    if wanted and (found := digest(path, kind)) != wanted:
        return f"is damaged or another file: its {kind} is {found}, not {wanted}"
    return ""


def _git_tree(folder: Path) -> bytes:
    """The id that git gives a folder of which every file has mode 755."""
    entries = []
    for path in folder.iterdir():
        name = path.name.encode()
        if path.is_dir():
            entries.append((name + b"/", b"40000 " + name, _git_tree(path)))  # git sorts folders as if with a slash
        else:
            entries.append((name, b"100755 " + name, _git_id(b"blob", path.read_bytes())))
    return _git_id(b"tree", b"".join(head + b"\0" + found for _, head, found in sorted(entries)))


def _git_id(kind: bytes, content: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(content)) + content, usedforsecurity=False).digest()
