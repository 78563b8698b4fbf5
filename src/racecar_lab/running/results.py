"""The results store: a folder with a record of each finished stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from racecar.support.extras import need
from racecar.support.files import check_folder, remove, write_atomically, write_json
from racecar_lab.running.published import Records, read_arrays, read_published
from racecar_lab.running.record import FORMAT, read_record, with_checksum
from racecar_lab.running.run import Run


def identity(content: Mapping[str, Any]) -> str:
    """A short hash of a mapping, for names that depend on its content alone."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """A folder of results: a file for each finished stage in ``records/``, with weights and arrays, and checkpoints of
    unfinished stages, in folders beside it; or the tables of ``published``; or both, and then files come first.

    The published tables are read once; after publishing again, make a new store.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @cached_property
    def _published(self) -> Records:
        return read_published(self.folder)

    @cached_property
    def _published_arrays(self) -> dict[str, dict[str, Tensor]]:
        return read_arrays(self.folder)

    def _path(self, kind: str, id: str, suffix: str) -> Path:
        """The path of a file of the stage with this id; ``kind`` is the folder that it is in."""
        return self.folder / kind / f"{id}{suffix}"

    def has(self, id: str) -> bool:
        """True if there is a record of the stage with this id, so that it need not be trained."""
        return self._path("records", id, ".json").exists() or id in self._published

    def get(self, id: str) -> Run:
        """The run of the finished stage with this id, under the setting that it was trained for."""
        path = self._path("records", id, ".json")
        if not path.exists() and id in self._published:
            return Run(self._published[id][0], self)
        return Run(read_record(path), self)

    def checkpoint(self, id: str) -> Path:
        """The path of an unfinished stage's checkpoint."""
        return self._path("checkpoints", id, ".pt")

    def pretraining(self, id: str) -> Path:
        """The path of the file that keeps layers that are pretrained already, while a stage of variant Pre is not
        finished."""
        return self._path("checkpoints", id, "-pretraining.pt")

    def begun(self, id: str) -> tuple[Path, ...]:
        """The paths from which an unfinished stage is resumed, if they exist."""
        return self.checkpoint(id), self.pretraining(id)

    def forget(self, id: str) -> None:
        """Remove the checkpoints of an unfinished stage."""
        for path in self.begun(id):
            remove(path)

    def check(self) -> None:
        """Raise an error if the folder cannot be written into, before anything is trained for it."""
        check_folder(self.folder, "--out")
        for kind in ("records", "weights", "arrays", "checkpoints"):
            if (self.folder / kind).exists():
                check_folder(self.folder / kind, "--out")

    def files(self, id: str) -> list[Path]:
        """Paths of the files of a finished stage that later stages need: its record and its weights."""
        return [self._path("records", id, ".json"), self._path("weights", id, ".safetensors")]

    def write(self, record: Mapping[str, Any], weights: Mapping[str, Tensor], arrays: Mapping[str, Tensor]) -> None:
        """Write the files of a finished stage. The record comes last, with the checksums of the others, so that a stage
        with a record is complete."""
        id = str(record["id"])
        files = {"weights": weights, "arrays": arrays}
        sums = {kind: self._save(kind, id, tensors) for kind, tensors in files.items() if tensors}
        for path in self._copies(id):  # of a result that this one replaces
            remove(path)
        write_json(self._path("records", id, ".json"), with_checksum({"format": FORMAT, **record, "sha256": sums}))
        self.forget(id)

    def _copies(self, id: str) -> list[Path]:
        """Paths of a finished stage's further records, which have another setting with the same result."""
        return sorted((self.folder / "records").glob(f"{id}-*.json"))

    def add_setting(
        self, id: str, config: Mapping[str, Any], tuned: Mapping[str, Any], purpose: str, command: str
    ) -> None:
        """Add a record of a finished stage under another setting with the same result, unless there is one. A search
        may choose the default settings, for example; pages then show the one training under both."""
        record = self.get(id).record
        setting = {"config": dict(config), "tuned": dict(tuned), "purpose": purpose}
        known = [record, *self._published.get(id, ()), *map(read_record, self._copies(id))]
        if identity(setting) not in [identity({name: other[name] for name in setting}) for other in known]:
            copy = {**record, **setting, "made": {**record["made"], "asked_by": command}}
            write_json(self._path("records", id, f"-{identity(setting)[:8]}.json"), with_checksum(copy))

    def _save(self, kind: str, id: str, tensors: Mapping[str, Tensor]) -> str:
        """Write tensors into a file; returns its SHA-256."""
        save = need("safetensors.torch", "lab").save
        content = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
        with write_atomically(self._path(kind, id, ".safetensors")) as file:
            file.write(content)
        return hashlib.sha256(content).hexdigest()

    def weights(self, id: str) -> dict[str, Tensor]:
        """The state dict of a finished stage's network."""
        path = self._path("weights", id, ".safetensors")
        if not path.exists():
            raise ValueError(f"{path} is missing: delete records/{id}.json to train that stage again")
        return self._load("weights", self.get(id))

    def arrays(self, run: Run) -> dict[str, Tensor]:
        """The arrays of a run from its file, else the published ones, which may be fewer; empty if there are none."""
        has_file = self._path("arrays", run.id, ".safetensors").exists()
        return self._load("arrays", run) if has_file else dict(self._published_arrays.get(run.id, {}))

    def _load(self, kind: str, run: Run) -> dict[str, Tensor]:
        """The tensors in a file of weights or arrays; a ValueError if it does not match the checksum in its record."""
        path = self._path(kind, run.id, ".safetensors")
        content, remedy = path.read_bytes(), f"delete records/{run.id}.json to train that stage again"
        if hashlib.sha256(content).hexdigest() != run.record["sha256"].get(kind):
            raise ValueError(f"{path} is not what was written, its SHA-256 is not the one in its record: {remedy}")
        try:
            return dict(need("safetensors.torch", "lab").load(content))
        except need("safetensors", "lab").SafetensorError as error:
            raise ValueError(f"{path} is damaged ({error}): {remedy}") from None

    def read(self) -> tuple[list[Run], list[str]]:
        """All runs of the store, sorted by id, and a message for each record that cannot be read. A net whose result
        holds for several settings gives one run for each of them."""
        records: list[dict[str, Any]] = []
        problems: list[str] = []
        paths = sorted((self.folder / "records").glob("*.json"), key=lambda path: path.stem)
        for path in paths:
            try:
                records.append(read_record(path))
            except ValueError as error:
                problems.append(str(error))
        stems = {path.stem for path in paths}
        try:
            records += [record for id, same_id in self._published.items() if id not in stems for record in same_id]
        except ValueError as error:
            problems.append(str(error))
        return [Run(record, self) for record in sorted(records, key=lambda record: str(record["id"]))], problems

    def runs(self) -> list[Run]:
        """All runs of the store, sorted by id; raises ValueError if a record cannot be read."""
        runs, problems = self.read()
        if problems:
            raise ValueError(problems[0])
        return runs

    def frame(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each run, as in ``Run.row``; a cell is empty if an experiment has no
        such setting or metric."""
        rows = [run.row for run in self.runs()]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = sorted(
            names, key=lambda name: name.startswith("metrics.")
        )  # metrics last: experiments have different settings
        return need("pandas", "pandas").DataFrame(rows, columns=columns)
