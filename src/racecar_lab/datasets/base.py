"""The description of a data set: its origin and licence, its files, and how to read them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

Samples = tuple[Tensor, Tensor]
"""Pictures, uint8 (N, C, H, W), and labels, int64 (N,)."""


class DataError(ValueError):
    """A data set is missing or damaged, or could not be fetched; the message says where and what to do."""


@dataclass(frozen=True)
class File:
    """One file of a data set, or a folder of many small ones."""

    path: str
    """Path of the file or folder, below the data folder."""
    splits: tuple[str, ...]
    """Names of the splits, such as "train", that are read from it."""
    size: int | None = None
    """Number of bytes of the file; None if it is not known."""
    checksum: str = ""
    """The published checksum: "sha256:…", "md5:…", or "git-tree:…" for a folder; empty if there is none."""
    exact: bool = True
    """False for a folder of which a copy with other bytes, such as smaller pictures, is accepted, too."""


@dataclass(frozen=True)
class Download:
    """One file that is downloaded for a data set."""

    urls: tuple[str, ...]
    """Addresses of the same file, tried in this order."""
    path: str
    """Path of the downloaded file, below the data folder."""
    size: int | None = None
    checksum: str = ""
    members: Mapping[str, str] | None = None
    """For a tar archive: path in it → path below the data folder, of files or folders. The archive is then removed."""


@dataclass(frozen=True)
class Source:
    """A data set: its description, its files, and how they are got and read."""

    name: str
    title: str
    homepage: str
    licence: str
    citation: str
    counts: Mapping[str, int]
    """Split → number of samples."""
    forms: tuple[tuple[File, ...], ...]
    """Layouts of its files, in order of preference; the first one is that of ``fetch``."""
    read: Callable[[tuple[Path, ...], str], tuple[Tensor, ...]]
    """A function that reads a split: (its files, its name) → samples, labels and further columns; a DataError names the
    file that is damaged."""
    downloads: tuple[Download, ...] = ()
    obtain: str = ""
    """Advice for users on how to get the data set, if it cannot be fetched."""
    make: Callable[[Path], None] | None = None
    """A function that computes the data set's only file and writes it to the given path; None if the data set is not
    computed."""

    def load(self, folder: str | Path | None, split: str) -> Samples:
        """All samples of a split.

        Args:
            folder: the data folder; None: the default, see :func:`data_folder`.
            split: one of ``counts``.

        Returns:
            Pictures, uint8 (N, C, H, W), and labels, int64 (N,).
        """
        samples, labels = self.columns(folder, split)[:2]
        return samples, labels

    def columns(self, folder: str | Path | None, split: str) -> tuple[Tensor, ...]:
        """All columns of a split: samples, labels and, in some data sets, further tensors with one entry for each
        sample, such as the number of its frame.

        Args:
            folder: the data folder; None: the default, see :func:`data_folder`.
            split: one of ``counts``.
        """
        folder = data_folder(folder)
        paths = tuple(folder / file.path for file in self.find(folder, split))
        try:
            columns = self.read(paths, split)
            if len(columns[0]) != self.counts[split]:
                where = paths[0] if len(paths) == 1 else paths[0].parent
                raise DataError(f"{where} holds {len(columns[0])} samples of {split}, not {self.counts[split]}")
            return columns
        except DataError as error:
            raise DataError(f"{error}: {self.remedy(folder)}") from error

    def find(self, folder: Path, split: str) -> tuple[File, ...]:
        """The files of a split, in the first layout that has them all."""
        if split not in self.counts:
            raise ValueError(f"{self.name} has no split {split!r}, but {', '.join(self.counts)}")
        incomplete, expected = "", []
        for form in self.forms:
            files = tuple(file for file in form if split in file.splits)
            missing = [folder / file.path for file in files if not (folder / file.path).exists()]
            if not missing:
                return files
            if len(missing) < len(files):
                incomplete = incomplete or f"{missing[0]} is missing: {self.remedy(folder)}"
            expected.append(files[0].path)
        raise DataError(
            incomplete
            or f"{self.name} is not in {folder} (looked for {' or '.join(expected)}): {self.remedy(folder)}; "
            "--data or RACECAR_DATA name another folder"
        )

    def here(self, folder: Path) -> str:
        """Tell whether the files of the data set are in a data folder: "yes", "in part" or "no"."""
        try:
            for split in self.counts:
                self.find(folder, split)
        except DataError:
            files = (file for form in self.forms for file in form)
            return "in part" if any((folder / file.path).exists() for file in files) else "no"
        return "yes"

    def remedy(self, folder: Path) -> str:
        """Advice for users whose files are missing or damaged: a command that gets them, or ``obtain``."""
        if not self.downloads and self.make is None:
            return self.obtain
        option = "" if folder == data_folder(None) else f" --data {shlex.quote(str(folder))}"
        return f"racecar data {'fetch' if self.downloads else 'make'} {self.name}{option}"

    @property
    def size(self) -> int | None:
        """Number of bytes of the downloads, or of the files if they cannot be fetched; None if it is not known."""
        sizes = [file.size for file in self.downloads or self.forms[0]]
        return sum(size for size in sizes if size is not None) if None not in sizes else None


def files(folder: str, contents: Mapping[str, tuple[int | None, str]]) -> tuple[File, ...]:
    """A layout of files for training and for testing; the names of the latter begin with "test" or "t10k".

    Args:
        folder: path of their folder.
        contents: name of a file → its size in bytes, or None, and its checksum.
    """
    return tuple(
        File(f"{folder}{name}", ("test" if name.startswith(("test", "t10k")) else "train",), size, checksum)
        for name, (size, checksum) in contents.items()
    )


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Context manager around the reading of a file: any error becomes a DataError that names the file, because damaged
    files raise errors of many types.

    Args:
        kind: the expected kind of file, for the message.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} is damaged or no {kind} ({words(error)})") from error


def words(error: Exception) -> str:
    """The message of an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def data_folder(folder: str | Path | None) -> Path:
    """The folder of the data sets: ``folder``, else $RACECAR_DATA, else one in the user's cache."""
    chosen = folder or os.environ.get("RACECAR_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "racecar" / "data"
