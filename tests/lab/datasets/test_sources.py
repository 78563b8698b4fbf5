"""What every data set promises about itself, and how its files are found."""

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
import torch

from racecar_lab.datasets import SOURCES, DataError, File, Source, data_folder, source

DIGITS = {"sha256": 64, "md5": 32, "git-tree": 40}


@pytest.mark.parametrize("data_set", SOURCES.values(), ids=SOURCES)
def test_every_source_is_complete(data_set):
    assert all((data_set.name, data_set.title, data_set.homepage, data_set.licence, data_set.citation))
    assert data_set.homepage.startswith("http")
    assert bool(data_set.downloads) != bool(data_set.obtain), "it can be fetched, or it says where it is"
    for form in data_set.forms:
        assert {split for file in form for split in file.splits} == set(data_set.counts)
    paths = [file.path for form in data_set.forms for file in form]
    assert len(set(paths)) == len(paths)
    checksums = [file.checksum for form in data_set.forms for file in form] + [
        way.checksum for way in data_set.downloads
    ]
    for kind, _, digits in (checksum.partition(":") for checksum in checksums if checksum):
        assert re.fullmatch(f"[0-9a-f]{{{DIGITS[kind]}}}", digits)


@pytest.mark.parametrize("data_set", [each for each in SOURCES.values() if each.downloads], ids=lambda each: each.name)
def test_what_is_fetched_is_the_first_layout(data_set):
    """Every file of it is a download or lies where an archive is unpacked to."""
    for file in data_set.forms[0]:
        ways = [
            way
            for way in data_set.downloads
            if way.path == file.path
            or any(PurePosixPath(file.path).is_relative_to(place) for place in (way.members or {}).values())
        ]
        assert len(ways) == 1
        assert ways[0].checksum or file.checksum, "one of both is checked"
        assert all(url.startswith("https://") for url in ways[0].urls)


def test_names():
    assert source("mnist") is SOURCES["mnist"]
    with pytest.raises(ValueError, match="unknown data set 'mnits': did you mean mnist?"):
        source("mnits")
    with pytest.raises(ValueError, match="unknown data set 'zzz': there are mnist, cifar10,"):
        source("zzz")


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("RACECAR_DATA", "~/data")
    assert data_folder(tmp_path) == tmp_path
    assert data_folder("~/other") == Path("/home/me/other")
    assert data_folder(None) == Path("/home/me/data")
    monkeypatch.setenv("RACECAR_DATA", "")
    assert data_folder(None) == Path("/cache/racecar/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert data_folder(None) == Path("/home/me/.cache/racecar/data")


def read(paths, split):
    if any(path.read_text() == "bad" for path in paths):
        raise DataError(f"{paths[0]} is bad")
    return torch.zeros(len(paths), 1), torch.zeros(len(paths), dtype=torch.int64)


TWO = Source(
    "two",
    "Two layouts",
    "home",
    "free",
    "cite",
    {"train": 2, "test": 1},
    (
        (File("a/1", ("train",)), File("a/2", ("train",)), File("a/t", ("test",))),
        (File("b/1", ("train",)), File("b/2", ("train",)), File("b/t", ("test",))),
    ),
    read,
    obtain="ask at home",
)


def put(folder, *names, text="good"):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def chosen(folder, split):
    return [file.path for file in TWO.find(folder, split)]


def test_layouts_in_order_of_preference(tmp_path):
    assert TWO.here(tmp_path) == "no"
    put(tmp_path, "b/1", "b/2")
    assert chosen(tmp_path, "train") == ["b/1", "b/2"]
    assert TWO.here(tmp_path) == "in part"
    put(tmp_path, "a/1", "b/t")
    assert chosen(tmp_path, "train") == ["b/1", "b/2"], "a whole layout before an incomplete one"
    assert TWO.here(tmp_path) == "yes"
    put(tmp_path, "a/2")
    assert chosen(tmp_path, "train") == ["a/1", "a/2"]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DataError) as error:
        TWO.load(tmp_path, "train")
    assert str(error.value) == (
        f"two is not in {tmp_path} (looked for a/1 or b/1): ask at home; --data or RACECAR_DATA name another folder"
    )
    put(tmp_path, "b/2")
    with pytest.raises(DataError) as error:
        TWO.load(tmp_path, "train")
    assert str(error.value) == f"{tmp_path / 'b/1'} is missing: ask at home"
    with pytest.raises(ValueError, match="two has no split 'valid', but train, test"):
        TWO.load(tmp_path, "valid")


def test_what_is_wrong_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.delenv("RACECAR_DATA", raising=False)
    fetched = replace(SOURCES["mnist"], name="two", counts=TWO.counts, forms=TWO.forms, read=read)
    put(tmp_path, "a/1", "a/2", text="bad")
    with pytest.raises(DataError) as error:
        fetched.load(tmp_path, "train")
    assert str(error.value) == f"{tmp_path / 'a/1'} is bad: racecar data fetch two --data {tmp_path}"
    monkeypatch.setenv("RACECAR_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"is bad: racecar data fetch two$"):
        fetched.load(None, "train")


def test_a_wrong_number_of_samples_is_refused(tmp_path):
    put(tmp_path, "a/1", "a/2", "a/t")
    assert len(TWO.load(tmp_path, "test")[0]) == 1
    with pytest.raises(DataError, match=rf"{tmp_path / 'a'} holds 2 samples of train, not 3: ask at home"):
        replace(TWO, counts={"train": 3}).load(tmp_path, "train")
