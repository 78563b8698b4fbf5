"""Checksums against other programs' answers, and what a check says."""

import hashlib
import shutil
import subprocess

import pytest
import torch

from racecar_lab.datasets import DataError, File, Source, check
from racecar_lab.datasets.checksum import differs, digest


def test_files(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    assert digest(path, "md5") == "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
    assert digest(path, "sha256") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2
    good = f"md5:{digest(path, 'md5')}"
    assert differs(path, 3, good) == differs(path, None, good) == differs(path, 3, "") == ""
    assert differs(path, 4, good) == "has 3 bytes, not 4: it is truncated"
    assert differs(path, 2, good) == "has 3 bytes, not 2"
    assert "its md5 is 900150983cd24fb0d6963f7d28e17f72, not 00" in differs(path, 3, f"md5:{'0' * 32}")
    assert differs(tmp_path / "g", 3, good) == "is missing"
    assert differs(tmp_path, None, good) == "is a folder"
    assert differs(path, None, "git-tree:00") == "is a file"


@pytest.mark.skipif(not shutil.which("git"), reason="compares with git")
def test_folders_have_the_ids_that_git_gives_them(tmp_path):
    """Also where the order of names is git's own: b.png stands before the folder b, which stands before b0."""
    for name in ("b/1.png", "b.png", "b0", "c/d/e", "ä.png"):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 3)
        path.chmod(0o755)

    def git(*arguments: str) -> str:
        command = ["git", "-c", "core.fileMode=true", "-c", "core.autocrlf=false", "--git-dir", str(tmp_path / "git")]
        done = subprocess.run([*command, "--work-tree", str(tmp_path / "set"), *arguments], capture_output=True)
        return done.stdout.decode().strip()

    git("init")
    git("add", ".")
    assert digest(tmp_path / "set", "git-tree") == git("write-tree")


def read(paths, split):
    content = b"".join(path.read_bytes() if path.is_file() else b"d" for path in paths)
    if b"!" in content:
        raise DataError(f"{paths[0]} does not open")
    return torch.zeros(len(content)), torch.zeros(len(content), dtype=torch.int64)


def source_of(*files: File, **counts: int) -> Source:
    return Source("one", "One", "home", "free", "cite", counts, (files,), read, obtain="ask at home")


def file(name: str, content: bytes, *splits: str, known: bool = True) -> File:
    return File(name, splits, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}" if known else "")


def test_all_that_is_wrong_is_named_once(tmp_path):
    """Damaged, truncated, missing, not to be opened, and of another number; a good split beside them stays silent."""
    for name, content in {"damaged": b"abd", "short": b"ab", "closed": b"ab!", "fewer": b"abc", "good": b"abc"}.items():
        (tmp_path / name).write_bytes(content)
    source = source_of(
        file("damaged", b"abc", "a", "b"),
        file("short", b"abc", "c"),
        file("missing", b"abc", "d"),
        file("closed", b"ab!", "e"),
        file("fewer", b"abc", "f"),
        file("good", b"abc", "g"),
        a=3, b=3, c=3, d=3, e=3, f=4, g=3,
    )  # fmt: skip
    result = check(source, tmp_path)
    wanted = (
        "damaged is damaged or another file: its sha256 is",
        "short has 2 bytes, not 3: it is truncated",
        "one is not in ",
        "closed does not open",
        "fewer holds 3 samples of f, not 4",
    )
    assert len(result.problems) == len(wanted)
    assert all(words in line and "ask at home" in line for words, line in zip(wanted, result.problems, strict=True))


def test_notes(tmp_path):
    """A file without a published checksum, and a folder of other pictures than the published ones."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "d").mkdir()
    folder = File("d", ("x",), None, f"git-tree:{'0' * 40}", exact=False)
    result = check(source_of(file("f", b"abc", "x", known=False), folder, x=4), tmp_path)
    assert result.problems == ()
    assert result.notes == (
        "f has no published checksum",
        "d holds other pictures than the published ones, which will do",
    )
    (tmp_path / "d").rmdir()
    (tmp_path / "d").write_bytes(b"d")
    assert check(source_of(folder, x=1), tmp_path).problems == (f"{tmp_path / 'd'} is a file: ask at home",)
