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


def part_of(target, content):
    """The part of an earlier time."""
    target.parent.mkdir()
    part = target.with_name("file.bin.part")
    part.write_bytes(content)
    return part


def whole(target):
    return target.read_bytes() == CONTENT and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("checksum", [SHA256, MD5, ""])
def test_a_file(server, target, checksum):
    server.files["f"] = CONTENT
    download([server.url("f")], target, len(CONTENT), checksum)
    assert whole(target)
    assert server.asked == [("f", None)]


def test_a_cut_connection_goes_on_where_it_stopped(server, target):
    """Progress earns further tries."""
    server.files["f"] = CONTENT
    server.next["f"] = ["cut"] * (TRIES + 3)
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked[:3] == [("f", None), ("f", "bytes=350000-"), ("f", "bytes=525000-")]


def test_the_part_of_an_earlier_time_is_used(server, target, monkeypatch):
    """And it is kept when nothing comes, for the next time; the pauses between tries grow."""
    pauses = []
    monkeypatch.setattr("racecar_lab.datasets.download.PAUSE", 1.0)
    monkeypatch.setattr("time.sleep", pauses.append)
    part = part_of(target, CONTENT[:1000])
    server.files["f"] = CONTENT
    server.next["f"] = ["503"] * TRIES
    with pytest.raises(DataError, match=rf"file.bin could not be fetched: {server.url('f')} failed {TRIES} times.*503"):
        download([server.url("f")], target, len(CONTENT), SHA256)
    assert pauses == [1.0, 2.0]
    assert part.read_bytes() == CONTENT[:1000]
    assert not target.exists()
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked[-1] == ("f", "bytes=1000-")


def test_a_complete_part_is_not_fetched_again(server, target):
    part_of(target, CONTENT)
    download([server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked == []


@pytest.mark.parametrize("size", [len(CONTENT), None])
@pytest.mark.parametrize("stale", [b"another file" * 50, CONTENT + b"more", bytes(len(CONTENT))])
def test_a_part_of_another_file_is_thrown_away(server, target, stale, size):
    part_of(target, stale)
    server.files["f"] = CONTENT
    download([server.url("f")], target, size, SHA256)
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


@pytest.mark.parametrize("how", ["no length", "length abc", "length -3", f"length {'9' * 5000}"])
def test_an_end_that_nobody_announced(server, target, how):
    """Without a usable length from the server, the known size tells that the connection was cut."""
    server.files |= {"broken": CONTENT[:-1], "f": CONTENT}
    server.next |= {"broken": [how] * TRIES, "f": [how]}
    download([server.url("broken"), server.url("f")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert server.asked[-1][0] == "f"


def test_mirrors_take_turns(server, target):
    """Each failure is named if all fail; what no try can change is not tried again."""
    server.files |= {"wrong": bytes(len(CONTENT)), "short": CONTENT[:-1], "right": CONTENT}
    urls = [server.url(name) for name in ("missing", "wrong", "short")]
    with pytest.raises(DataError) as error:
        download(urls, target, len(CONTENT), SHA256)
    message = str(error.value)
    assert f"{urls[0]} answered 404" in message
    assert f"{urls[1]} is damaged or another file: its sha256 is" in message
    assert f"{urls[2]} has 699999 bytes, not 700000" in message
    assert list(target.parent.iterdir()) == []
    download([*urls, server.url("right")], target, len(CONTENT), SHA256)
    assert whole(target)
    assert [path for path, _ in server.asked] == ["missing", "wrong", "short", "missing", "wrong", "short", "right"]
    assert all(asked is None for _, asked in server.asked)


def test_another_file_does_not_replace_the_part(server, target):
    """As the page of a hotel that wants a password first."""
    part = part_of(target, CONTENT[:1000])
    server.files["f"] = b"<html>Log in</html>"
    server.next["f"] = ["no range"]
    with pytest.raises(DataError, match="has 19 bytes, not 700000"):
        download([server.url("f")], target, len(CONTENT), SHA256)
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_more_than_there_should_be_is_not_received(server, target, size, monkeypatch):
    monkeypatch.setattr("racecar_lab.datasets.download.MOST", 10 * len(CONTENT))
    server.files |= {"long": CONTENT, "longer": bytes(11 * len(CONTENT))}
    server.next["long"] = ["endless"]
    with pytest.raises(DataError, match=r"long sends more than \d+ bytes; .*longer has 7700000 bytes, "):
        download([server.url("long"), server.url("longer")], target, size, SHA256)
    assert server.sent < 10 * len(CONTENT) + (8 << 20)  # what the machine keeps on the way
    assert list(target.parent.iterdir()) == []


def test_addresses_that_others_can_change_are_refused(server, target, monkeypatch):
    """Neither by http, nor where a server sends us on to."""
    server.files["f"] = CONTENT
    server.next["f"] = ["to https://elsewhere/f", "to file:///etc/passwd"]
    for _ in range(2):  # the tests' server has no certificate, so here http alone is permitted
        with pytest.raises(DataError, match="sends us on to https://elsewhere/f, which is not http|302"):
            download([server.url("f")], target)
    monkeypatch.undo()
    with pytest.raises(DataError, match=rf"is at {server.url('f')}, which is not https"):
        download([server.url("f")], target)
    assert len(server.asked) == 2


def test_nobody_there(target, monkeypatch):
    monkeypatch.setattr("racecar_lab.datasets.download.SCHEMES", ("http",))
    monkeypatch.setattr("racecar_lab.datasets.download.PAUSE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match=f"failed {TRIES} times: .*refused"):
        download([f"http://127.0.0.1:{port}/f"], target)
