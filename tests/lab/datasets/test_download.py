"""Downloads from a real server on this machine, which cuts connections and lies."""

import hashlib
import random
import socket

import pytest

from racecar_lab.datasets import DataError
from racecar_lab.datasets.download import TRIES, download

CONTENT = random.Random(0).randbytes(700_000)  # more than one chunk
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "deep" / "file.bin"


def part_of(target):
    return target.with_name("file.bin.part")


def whole(target):
    return target.read_bytes() == CONTENT and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("checksum", [SHA256, MD5, ""])
def test_a_file(server, target, checksum):
    server.files["f"] = CONTENT
    download([server.url("f")], target, len(CONTENT), checksum)
    assert whole(target)
    assert server.asked == [("f", None)]


def test_a_cut_connection_goes_on_where_it_stopped(server, target):
    server.files["f"] = CONTENT
    server.next["f"] = ["cut", "cut"]
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked == [("f", None), ("f", "bytes=350000-"), ("f", "bytes=525000-")]


def test_progress_earns_further_tries(server, target):
    server.files["f"] = CONTENT
    server.next["f"] = ["cut"] * (TRIES + 3)
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)


def test_the_part_of_an_earlier_time_is_used(server, target):
    """And it is kept when nothing comes, for the next time."""
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT[:1000])
    server.files["f"] = CONTENT
    server.next["f"] = ["503"] * TRIES
    with pytest.raises(DataError, match=rf"file.bin could not be fetched: {server.url('f')} failed {TRIES} times.*503"):
        download([server.url("f")], target, len(CONTENT), SHA256)
    assert part_of(target).read_bytes() == CONTENT[:1000]
    assert not target.exists()
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked[-1] == ("f", "bytes=1000-")


def test_a_complete_part_is_not_fetched_again(server, target):
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT)
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked == []


def test_a_part_after_which_nothing_comes_is_thrown_away(server, target):
    """Nobody knows the file's size: it is whole, or not a part of this file."""
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT)
    server.files["f"] = CONTENT
    download([server.url("f")], target, None, SHA256)
    assert whole(target)
    assert server.asked == [("f", f"bytes={len(CONTENT)}-"), ("f", None)]


@pytest.mark.parametrize("stale", [b"another file" * 50, CONTENT + b"more", bytes(len(CONTENT))])
def test_a_part_of_another_file_is_thrown_away(server, target, stale):
    target.parent.mkdir()
    part_of(target).write_bytes(stale)
    server.files["f"] = CONTENT
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)


def test_a_server_that_knows_no_ranges_sends_all_again(server, target):
    server.files["f"] = CONTENT
    server.next["f"] = ["cut", "no range"]
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)


def test_a_server_that_sends_another_range_is_not_believed(server, target):
    server.files["f"] = CONTENT
    server.next["f"] = ["cut", "other range"]
    with pytest.raises(DataError, match="another part of the file than bytes 350000-"):
        download([server.url("f")], target, len(CONTENT), SHA256)


def test_an_end_that_nobody_announced(server, target):
    """Without a length from the server, the known size tells that the connection was cut."""
    server.files["f"] = CONTENT
    server.next["f"] = ["no length"]
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked[-1] == ("f", "bytes=350000-")


def test_mirrors_take_turns(server, target):
    server.files |= {"wrong": bytes(len(CONTENT)), "short": CONTENT[:-1], "right": CONTENT}
    urls = [server.url(name) for name in ("missing", "wrong", "short", "right")]
    download(urls, target, len(CONTENT), SHA256)
    assert whole(target)
    assert [path for path, _ in server.asked] == ["missing", "wrong", "short", "right"]
    assert all(asked is None for _, asked in server.asked)


def test_another_file_does_not_replace_the_part(server, target):
    """As the page of a hotel that wants a password first."""
    target.parent.mkdir()
    part_of(target).write_bytes(CONTENT[:1000])
    server.files["f"] = b"<html>Log in</html>"
    server.next["f"] = ["no range"]
    with pytest.raises(DataError, match="has 19 bytes, not 700000"):
        download([server.url("f")], target, len(CONTENT), SHA256)
    assert part_of(target).read_bytes() == CONTENT[:1000]


def test_every_failure_is_named(server, target):
    server.files |= {"wrong": bytes(len(CONTENT)), "short": CONTENT[:-1]}
    urls = [server.url(name) for name in ("missing", "wrong", "short")]
    with pytest.raises(DataError) as error:
        download(urls, target, len(CONTENT), SHA256)
    message = str(error.value)
    found = hashlib.sha256(bytes(len(CONTENT))).hexdigest()
    assert f"{urls[0]} answered 404" in message
    assert f"{urls[1]} is damaged or another file: its sha256 is {found}, not {SHA256[7:]}" in message
    assert f"{urls[2]} has 699999 bytes, not 700000" in message
    assert len(server.asked) == 3, "what no try can change is not tried again"
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("length", ["abc", "-3", "1e3", "", "9" * 5000, "\xb2"])
def test_a_length_that_is_none(server, target, length):
    """It is as if there were none: the size and the checksum that are known say whether the file is whole."""
    server.files |= {"broken": CONTENT[:-1], "f": CONTENT}
    server.next |= {"broken": [f"length {length}"] * TRIES, "f": [f"length {length}"]}
    download([server.url("broken"), server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked[-1][0] == "f"


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_more_than_there_should_be_is_not_received(server, target, size, monkeypatch):
    monkeypatch.setattr("racecar_lab.datasets.download.MOST", 10 * len(CONTENT))
    server.files |= {"long": CONTENT, "f": CONTENT}
    server.next["long"] = ["endless"]
    download([server.url("long"), server.url("f")], target, size, SHA256)
    assert whole(target)
    assert server.sent < 10 * len(CONTENT) + (8 << 20)  # what the machine keeps on the way
    server.next["long"] = ["endless"]
    with pytest.raises(DataError, match=r"long sends more than \d+ bytes"):
        download([server.url("long")], target.with_name("other"), size, SHA256)
    assert list(target.parent.iterdir()) == [target]


def test_too_long_a_file_is_not_begun(server, target, monkeypatch):
    monkeypatch.setattr("racecar_lab.datasets.download.MOST", 1000)
    server.files["f"] = CONTENT
    with pytest.raises(DataError, match="has 700000 bytes, more than 1000"):
        download([server.url("f")], target)
    assert not part_of(target).exists()


def test_only_what_nobody_on_the_way_can_change(server, target, monkeypatch):
    """Neither an address by http, nor one that a server sends us on to."""
    server.files["f"] = CONTENT
    server.next["f"] = [f"to {server.url('f').replace('http:', 'https:')}", "to //[", "to file:///etc/passwd"]
    for _ in range(3):  # here http is what may be
        with pytest.raises(DataError, match=r"sends us on to https://.*, which is not http|no server should|302"):
            download([server.url("f")], target)
    assert len(server.asked) == 3
    monkeypatch.undo()
    with pytest.raises(DataError, match=rf"is at {server.url('f')}, which is not https"):
        download([server.url("f")], target)
    assert len(server.asked) == 3


def test_nobody_there(target, monkeypatch):
    monkeypatch.setattr("racecar_lab.datasets.download.SCHEMES", ("http",))
    monkeypatch.setattr("racecar_lab.datasets.download.PAUSE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match=f"failed {TRIES} times: cannot be reached"):
        download([f"http://127.0.0.1:{port}/f"], target)


def test_the_pauses_grow(server, target, monkeypatch):
    monkeypatch.setattr("racecar_lab.datasets.download.PAUSE", 1.0)
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    server.files["f"] = CONTENT
    server.next["f"] = ["503", "503"]
    download([server.url("f")], target)
    assert waited == [1.0, 2.0]
