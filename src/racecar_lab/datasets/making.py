"""Making of data sets that are computed on this machine, with checksums."""

from __future__ import annotations

from pathlib import Path

from racecar.support.files import check_folder, write_text
from racecar_lab.datasets.base import DataError, Source, data_folder
from racecar_lab.datasets.checking import check
from racecar_lab.datasets.checksum import checksum_file, digest


def make(source: Source, folder: str | Path | None = None) -> bool:
    """Make a data set in the data folder. Returns False if it is there already, and good.

    Another version of the software that makes it may give other bytes, so no checksum is published: it is written into
    a file beside the data when they are made, as ``sha256sum`` does.
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
    write_text(checksum_file(path), f"{digest(path, 'sha256')}  {path.name}\n")
    if problems := check(source, folder).problems:
        raise DataError(problems[0])
    return True
