"""Whole data sets from a server on this machine: checked, unpacked, in their places; and nothing elsewhere."""

import hashlib
import io
import tarfile

import pytest
import torch

from racecar_lab.datasets import DataError, Download, File, Source, check, fetch
from racecar_lab.datasets.fetching import unpack

FILES = {"set/one.bin": b"\x01" * 7, "set/deep/two.bin": b"\x02" * 5}
"""As a user has them; the archive has them below top-abc/data."""


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(*members: tuple[str, bytes | None]) -> bytes:
    """A tar.gz; a member without content is a link to /etc/passwd."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content or b""))
    return buffer.getvalue()


OFFICIAL = archive(
    ("top-abc/readme.txt", b"not wanted"),
    ("top-abc/data/one.bin", FILES["set/one.bin"]),
    ("top-abc/data/deep/two.bin", FILES["set/deep/two.bin"]),
)


def read(paths, split):
    content = b"".join(path.read_bytes() for path in paths)
    return torch.tensor(list(content), dtype=torch.uint8), torch.zeros(len(content), dtype=torch.int64)


@pytest.fixture
def source(server):
    """Two files in an archive on the server."""
    server.files["set.tar.gz"] = OFFICIAL
    files = tuple(File(name, ("all",), len(content), sha(content)) for name, content in FILES.items())
    archived = Download(
        (server.url("set.tar.gz"),), "set.tar.gz", len(OFFICIAL), sha(OFFICIAL), {"top-abc/data": "set"}
    )
    return Source("tiny", "Tiny", "home", "free", "cite", {"all": 12}, (files,), read, (archived,))


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_archive(server, source, tmp_path):
    assert fetch(source, tmp_path)
    assert files_in(tmp_path) == FILES, "no archive, no part, no readme left"
    assert source.load(tmp_path, "all")[0].tolist() == [1] * 7 + [2] * 5
    assert not fetch(source, tmp_path), "what is there is not fetched again"
    assert len(server.asked) == 1


def test_a_damaged_file_is_replaced_and_others_stay(source, tmp_path):
    fetch(source, tmp_path)
    (tmp_path / "set/one.bin").write_bytes(b"\x09" * 7)
    (tmp_path / "set/mine.txt").write_text("mine")
    assert check(source, tmp_path).problems
    assert fetch(source, tmp_path)
    assert files_in(tmp_path) == FILES | {"set/mine.txt": b"mine"}


def test_an_archive_that_is_there_is_used_and_kept(server, source, tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(OFFICIAL)
    fetch(source, tmp_path)
    assert files_in(tmp_path) == FILES | {"set.tar.gz": OFFICIAL}
    assert server.asked == []


def test_a_wrong_archive_leaves_nothing(server, source, tmp_path):
    server.files["set.tar.gz"] = bytes(len(OFFICIAL))
    with pytest.raises(DataError, match="set.tar.gz is damaged or another file: its sha256 is"):
        fetch(source, tmp_path)
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize(
    "content, problem",
    [
        (archive(("top-abc/data/one.bin", FILES["set/one.bin"])), "set/deep/two.bin in it is missing"),
        (archive(("top-abc/data/one.bin", b"other")), "set/one.bin in it has 5 bytes, not 7"),
        (OFFICIAL[:-30], "cannot be unpacked"),
        (b"no archive", "cannot be unpacked"),
    ],
)
def test_an_archive_without_a_checksum_is_checked_inside(server, source, tmp_path, content, problem):
    """As one that a server makes anew for every user."""
    server.files["set.tar.gz"] = content
    archived = Download(source.downloads[0].urls, "set.tar.gz", members=source.downloads[0].members)
    source = Source(**{**vars(source), "downloads": (archived,)})
    with pytest.raises(DataError, match=problem):
        fetch(source, tmp_path)
    assert not (tmp_path / "set").exists()
    server.files["set.tar.gz"] = OFFICIAL
    fetch(source, tmp_path)
    assert files_in(tmp_path) == FILES


def test_single_files(server, tmp_path):
    """Only what is missing is fetched."""
    server.files |= {"one": FILES["set/one.bin"], "two": FILES["set/deep/two.bin"]}
    files = tuple(File(name, ("all",), len(content), sha(content)) for name, content in FILES.items())
    ways = tuple(
        Download((server.url(url),), name, len(content), sha(content))
        for url, (name, content) in zip(("one", "two"), FILES.items(), strict=True)
    )
    source = Source("tiny", "Tiny", "home", "free", "cite", {"all": 12}, (files,), read, ways)
    fetch(source, tmp_path)
    assert files_in(tmp_path) == FILES
    (tmp_path / "set/one.bin").unlink()
    fetch(source, tmp_path)
    assert [path for path, _ in server.asked] == ["one", "two", "one"]


@pytest.mark.parametrize("name", ["top/../../evil", "top/a/../../../evil"])
def test_nothing_leaves_the_folder(tmp_path, name):
    (tmp_path / "evil.tar.gz").write_bytes(archive(("top/a/good", b"good"), (name, b"evil")))
    (tmp_path / "inside").mkdir()
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "evil.tar.gz", tmp_path / "inside", {"top": "set"})
    assert set(files_in(tmp_path)) == {"evil.tar.gz", "inside/set/a/good"}


def test_links_and_unwanted_members_are_left_out(tmp_path):
    members = (("top/link", None), ("/top/absolute", b""), ("topmost/other", b""), ("top/good", b"good"))
    (tmp_path / "some.tar.gz").write_bytes(archive(*members))
    unpack(tmp_path / "some.tar.gz", tmp_path / "out", {"top": "set"})
    assert [str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")] == ["set", "set/good"]
