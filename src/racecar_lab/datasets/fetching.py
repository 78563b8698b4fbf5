"""Fetching of a data set into the data folder: download, check, unpack."""

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
    """Fetch a data set into the data folder. Returns False if it is there already.

    An archive that is in the data folder is used, and not removed.
    """
    if not source.downloads:
        raise DataError(f"{source.name} cannot be fetched: {source.obtain}")
    folder = data_folder(folder)
    if not check(source, folder).problems:
        return False
    for file in source.downloads:
        target = folder / file.path
        exists = bool(file.checksum) and not differs(target, file.size, file.checksum)
        if not exists:
            download(file.urls, target, file.size, file.checksum)
        if file.members is not None:
            _unpack(source, file, folder)
            if not exists:
                target.unlink()
    if problems := check(source, folder).problems:
        raise DataError(problems[0])
    return True


def _unpack(source: Source, archive: Download, folder: Path) -> None:
    """Unpack an archive into a temporary folder, check its files, and move them into the data folder."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack.") as name:
        temporary = Path(name)
        unpack(folder / archive.path, temporary, archive.members or {})
        for file in source.forms[0]:
            if difference := differs(temporary / file.path, file.size, file.checksum):
                raise DataError(f"{archive.urls[0]}: {file.path} in it {difference}")
        for path in sorted(temporary.rglob("*")):
            if path.is_file():
                target = folder / path.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)


def unpack(archive: Path, folder: Path, members: Mapping[str, str]) -> None:
    """Unpack plain files of a tar archive, those at or below the paths in ``members``, path → new path. Nothing is
    written outside the folder."""
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
    """The new path of a member; empty if it is not to be unpacked."""
    path = PurePosixPath(name)
    for old, new in members.items():
        if path.is_relative_to(old):
            return str(PurePosixPath(new) / path.relative_to(old))
    return ""
