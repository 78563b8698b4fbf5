"""Whether the files of a data set are what was published, and open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from racecar_lab.datasets.base import DataError, File, Source, data_folder
from racecar_lab.datasets.checksum import differs, written


@dataclass(frozen=True)
class Checked:
    """What was found; nothing is wrong if there are no problems."""

    problems: tuple[str, ...]
    """One line each: the file, what is wrong, what to do."""
    notes: tuple[str, ...]
    """What is worth knowing."""


def check(source: Source, folder: str | Path | None = None) -> Checked:
    """Compare sizes and checksums with the published ones, or those of when it was made, and open every split."""
    folder = data_folder(folder)
    problems: dict[str, None] = {}  # in order, each once: splits may share a file
    compared: dict[File, str] = {}
    for split in source.counts:
        try:
            files = source.find(folder, split)
            for file in files:
                if file not in compared:
                    compared[file] = differs(folder / file.path, file.size, wanted_checksum(file, folder))
            wrong = [file for file in files if compared[file] and not _passable(file, folder)]
            for file in wrong:
                problems[f"{folder / file.path} {compared[file]}: {source.remedy(folder)}"] = None
            if not wrong:
                source.load(folder, split)
        except DataError as error:
            problems[str(error)] = None
    unknown = [Path(file.path).name for file in compared if not file.checksum and not file.made]
    other = [Path(file.path).name for file, different in compared.items() if different and _passable(file, folder)]
    notes = [f"no checksum is published for {', '.join(unknown)}"] if unknown else []
    notes += [f"not the published pictures, but such as will do: {', '.join(other)}"] if other else []
    for file in (one for one in compared if one.made):
        known = wanted_checksum(file, folder)
        notes.append(f"made here, {known}" if known else f"{Path(file.path).name} has no checksum beside it")
    return Checked(tuple(problems), tuple(notes))


def wanted_checksum(file: File, folder: Path) -> str:
    """As published, or as it was written when the file was made."""
    return written(folder / file.path) if file.made else file.checksum


def _passable(file: File, folder: Path) -> bool:
    """Whether the folder may hold other bytes than those published."""
    return not file.exact and (folder / file.path).is_dir()
