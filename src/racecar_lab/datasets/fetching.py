"""Getting of a data set into the data folder: downloaded, checked and unpacked, or made on this machine."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from racecar.support.files import check_folder, write_text
from racecar_lab.datasets.base import DataError, Download, Source, data_folder, words
from racecar_lab.datasets.checksum import check, checksum_file, differs, digest
from racecar_lab.datasets.download import download


def fetch(source: Source, folder: str | Path | None = None) -> bool:
    """Download the files of a data set into the data folder. Returns False if they are there already, and good.

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
            _unpack_checked(source, file, folder)
            if not exists:
                target.unlink()
    _refuse_problems(source, folder)
    return True


def make(source: Source, folder: str | Path | None = None) -> bool:
    """Compute a data set on this machine, into the data folder. Returns False if it is there already, and good.

    Another version of the software that makes it may give other bytes, so no checksum is published: it is written into
    a file beside the data when they are made, as ``sha256sum`` does.
    """
    folder = data_folder(folder)
    if source.make is None:
        raise DataError(f"{source.name} is not made: {source.remedy(folder)}")
    (file,) = source.forms[0]
    path = folder / file.path
    if path.exists() and not check(source, folder).problems:
        return False
    check_folder(folder, "--data")
    source.make(path)
    write_text(checksum_file(path), f"{digest(path, 'sha256')}  {path.name}\n")
    _refuse_problems(source, folder)
    return True


def _refuse_problems(source: Source, folder: Path) -> None:
    if problems := check(source, folder).problems:
        raise DataError(problems[0])


def _unpack_checked(source: Source, archive: Download, folder: Path) -> None:
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
                path = PurePosixPath(member.name)
                for old, new in members.items():
                    if path.is_relative_to(old) and member.isfile():
                        name = str(PurePosixPath(new) / path.relative_to(old))
                        tar.extract(member.replace(name=name), folder, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} cannot be unpacked ({words(error)})") from error
