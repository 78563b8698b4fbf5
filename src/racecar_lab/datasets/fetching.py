"""A data set from the network into the data folder: download, check, unpack."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from racecar_lab.datasets.base import DataError, Download, Source, data_folder, words
from racecar_lab.datasets.checking import check
from racecar_lab.datasets.checksum import differs
from racecar_lab.datasets.download import download


def fetch(source: Source, folder: str | Path | None = None) -> bool:
    """Bring a data set into the data folder, unless it is there; whether anything had to be fetched.

    An archive that already lies in the data folder is used, and kept.
    """
    if not source.downloads:
        raise DataError(f"{source.name} cannot be fetched: {source.obtain}")
    folder = data_folder(folder)
    if not check(source, folder).problems:
        return False
    for one in source.downloads:
        target = folder / one.path
        there = bool(one.checksum) and not differs(target, one.size, one.checksum)
        if not there:
            download(one.urls, target, one.size, one.checksum)
        if one.members is not None:
            _unpack(source, one, folder)
            if not there:
                target.unlink()
    if problems := check(source, folder).problems:
        raise DataError(problems[0])
    return True


def _unpack(source: Source, one: Download, folder: Path) -> None:
    """Unpack an archive aside; only files that are as published take their places."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack.") as made:
        aside = Path(made)
        unpack(folder / one.path, aside, one.members or {})
        for file in source.forms[0]:
            if wrong := differs(aside / file.path, file.size, file.checksum):
                raise DataError(f"{one.urls[0]}: {file.path} in it {wrong}")
        for path in sorted(aside.rglob("*")):
            if path.is_file():
                place = folder / path.relative_to(aside)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)


def unpack(archive: Path, folder: Path, members: Mapping[str, str]) -> None:
    """Plain files of a tar archive, those at or below the given paths, under new names; nothing outside the folder."""
    if not hasattr(tarfile, "data_filter"):
        raise DataError(f"{archive} cannot be unpacked safely by this Python: it must be 3.11.4 or later")
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = _renamed(member.name, members)
                if name and member.isfile():
                    tar.extract(member.replace(name=name), folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} cannot be unpacked ({words(error)})") from error


def _renamed(name: str, members: Mapping[str, str]) -> str:
    path = PurePosixPath(name)
    for old, new in members.items():
        if path.is_relative_to(old):
            return str(PurePosixPath(new) / path.relative_to(old))
    return ""
