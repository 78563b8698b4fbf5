"""Files are written atomically: whole or not at all."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from racecar.support.files import remove, write_atomically, write_json, write_text

ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- whole or not at all ------------------------------------------------------------------------------------------


def test_nothing_shows_before_the_file_is_complete(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with write_atomically(path) as file:
        file.write(b"n" * 100_000)
        file.flush()
        assert path.read_bytes() == b"old"
    assert contents(tmp_path) == {"a": b"n" * 100_000}


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_leaves_what_was_there(tmp_path: Path, error: type[BaseException], old: bytes | None):
    path = tmp_path / "a"
    if old is not None:
        path.write_bytes(old)
    before = contents(tmp_path)
    with pytest.raises(error), write_atomically(path) as file:  # noqa: PT012
        file.write(b"half of it")
        raise error("stopped")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"), write_atomically(path) as file:
        file.write(b"new")
    monkeypatch.undo()
    assert contents(tmp_path) == {"a": b"old"}


def test_a_killed_process_leaves_what_was_there(tmp_path: Path):
    """SIGKILL in the middle of writing, when half of the new content has reached the disk."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    script = (
        "import os, runpy, signal, sys\n"
        "write = runpy.run_path(sys.argv[1])['write_atomically']\n"
        "with write(sys.argv[2]) as file:\n"
        "    file.write(b'half'); file.flush(); os.fsync(file.fileno())\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", script, str(ROOT / "src/racecar/support/files.py"), str(path)]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    write_text(path, "new")  # what the dead process left behind is in nobody's way
    assert path.read_bytes() == b"new"
    write_text(tmp_path / "ab", "other")
    remove(path)
    assert contents(tmp_path) == {"ab": b"other"}, "also what it left behind"
    remove(path)


def test_the_content_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    order = []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        order.append(("fsync", os.fstat(handle).st_size))
        fsync(handle)

    def replaced(*args, **kwargs):
        order.append(("replace", 0))
        replace(*args, **kwargs)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_text(tmp_path / "a", "12345")
    assert order[:2] == [("fsync", 5), ("replace", 0)]


def test_concurrent_writers_never_mix(tmp_path: Path):
    path, errors = tmp_path / "a", []
    texts = [letter * 5000 for letter in "abcd"]
    write_text(path, texts[0])
    done = threading.Event()

    def write(text: str) -> None:
        for _ in range(15):
            write_text(path, text)

    def read() -> None:
        while not done.is_set():
            if path.read_text() not in texts:
                errors.append("mixed")

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    reader.start()
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    done.set()
    reader.join()
    assert not errors
    assert list(contents(tmp_path)) == ["a"]


# --- permissions and places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path: Path, mask: int):
    """As those of a file that ``open`` makes."""
    before = os.umask(mask)
    try:
        write_text(tmp_path / "ours", "x")
        (tmp_path / "plain").write_text("x")
        assert os.umask(mask) == mask, "the umask stays as it was"
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")]
    assert modes[0] == modes[1] == 0o666 & ~mask


def test_threads_never_lose_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The umask belongs to the process: to read it by setting it to 0 is a race that may leave it at 0 for good."""
    umask = os.umask

    def slow(mask: int) -> int:
        before = umask(mask)
        time.sleep(0.002)  # time for another thread to come between: longer than usual, and no other than usual
        return before

    before = umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", slow)
        threads = [threading.Thread(target=write_text, args=(tmp_path / name, "x")) for name in "abcdef"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        after = umask(before)
    assert oct(after) == oct(0o027)
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()} == {oct(0o640)}


def test_folders_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_text(tmp_path / "a" / "b" / "c.txt", "x")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "x"
    monkeypatch.chdir(tmp_path)
    write_text("here.txt", "x")
    write_text("deep/here.txt", "y")
    assert Path("here.txt").read_text() == "x"
    assert Path("deep/here.txt").read_text() == "y"


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path):
    path = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    path.write_text("a plain write can")
    write_text(path, "x")
    assert path.read_text() == "x"


def test_places_where_no_file_can_be(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_text(tmp_path / "folder", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert not list((tmp_path / "folder").iterdir())
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match="file"):
        write_text(tmp_path / "file" / "below", "x")
    assert (tmp_path / "file").read_text() == "kept"


# --- text and JSON ------------------------------------------------------------------------------------------------


def test_text_is_utf8_byte_for_byte(tmp_path: Path):
    write_text(tmp_path / "a", "λ · Σ\r\nd′\n")
    assert (tmp_path / "a").read_bytes() == "λ · Σ\r\nd′\n".encode()
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a", "half a pair: \ud800")
    assert (tmp_path / "a").read_bytes() == "λ · Σ\r\nd′\n".encode()


def test_json_comes_back_as_it_was(tmp_path: Path):
    content = {"λ": [None, True, 10**40, 0.1, -0.0, 5e-324, '\u2028"\\\n'], "z": {"": [], "a": {}}, "b": "\x00"}
    write_json(tmp_path / "a.json", content)
    raw = (tmp_path / "a.json").read_bytes()
    assert raw.endswith(b"\n")
    back = json.loads(raw.decode("utf-8"))
    assert repr(back) == repr(content), "also the kind of every number and the order of every key"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [1, x], lambda x: {"a": {"b": x}}, lambda x: {x: 1}])
def test_json_refuses_what_it_does_not_know(tmp_path: Path, number: float, wrap):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, wrap(number))
    with pytest.raises(TypeError):
        write_json(path, wrap(object()))
    assert contents(tmp_path) == {"a.json": b"old"}
