"""A data set that is computed on this machine: made, and its checksum written beside it."""

from __future__ import annotations

from pathlib import Path

from racecar.support.files import check_folder, write_text
from racecar_lab.datasets.base import DataError, Source, data_folder
from racecar_lab.datasets.checking import check
from racecar_lab.datasets.checksum import beside, digest


def make(source: Source, folder: str | Path | None = None) -> bool:
    """Make a data set in the data folder, unless it is there and whole; whether anything had to be made.

    What it is made with may give other bytes in another version, so no checksum can be published: that of the file is
    written when it is made, as ``sha256sum`` does.
    """
    if source.make is None:
        raise DataError(f"{source.name} is not made: {source.remedy(data_folder(folder))}")
    folder = data_folder(folder)
    (file,) = source.forms[0]
    path = folder / file.path
    if path.exists() and not check(source, folder).problems:
        return False
    check_folder(folder, "--data")
    source.make(path)
    write_text(beside(path), f"{digest(path, 'sha256')}  {path.name}\n")
    if problems := check(source, folder).problems:
        raise DataError(problems[0])
    return True
