"""Checks the files of a data set: sizes and checksums, and that they can be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from racecar_lab.datasets.base import DataError, File, Source, data_folder
from racecar_lab.datasets.checksum import differs, written_checksum


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    problems: tuple[str, ...]
    """One line each: the file, what is wrong, what to do. Empty if the data set is good."""
    notes: tuple[str, ...]
    """Remarks that are no problems, one line each."""


def check(source: Source, folder: str | Path | None = None) -> Checked:
    """Compare sizes and checksums with the published ones (or those written when it was made), and read every split."""
    folder = data_folder(folder)
    problems: dict[str, None] = {}  # an ordered set: splits may share a file
    compared: dict[File, str] = {}
    for split in source.counts:
        try:
            files = source.find(folder, split)
            for file in files:
                if file not in compared:
                    compared[file] = differs(folder / file.path, file.size, wanted_checksum(file, folder))
            wrong = [file for file in files if compared[file] and not _may_differ(file, folder)]
            for file in wrong:
                problems[f"{folder / file.path} {compared[file]}: {source.remedy(folder)}"] = None
            if not wrong:
                source.load(folder, split)
        except DataError as error:
            problems[str(error)] = None
    unknown = [Path(file.path).name for file in compared if not file.checksum and not file.made]
    other = [Path(file.path).name for file, different in compared.items() if different and _may_differ(file, folder)]
    notes = [f"no checksum is published for {', '.join(unknown)}"] if unknown else []
    notes += [f"not the published pictures, but such as will do: {', '.join(other)}"] if other else []
    for file in (file for file in compared if file.made):
        known = wanted_checksum(file, folder)
        notes.append(f"made here, {known}" if known else f"{Path(file.path).name} has no checksum beside it")
    return Checked(tuple(problems), tuple(notes))


def wanted_checksum(file: File, folder: Path) -> str:
    """The checksum that a file should have: the published one, or the one written when it was made."""
    return written_checksum(folder / file.path) if file.made else file.checksum


def _may_differ(file: File, folder: Path) -> bool:
    """True for a folder of which other copies are accepted."""
    return not file.exact and (folder / file.path).is_dir()
