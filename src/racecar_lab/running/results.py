"""The results store: one record for each finished stage; nothing is written twice, nothing is lost."""

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


def identity(what: Mapping[str, Any]) -> str:
    """A name for a result: a hash of all that determines it."""
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """A folder of results: a file for each finished stage in ``records/``, beside them weights, arrays and the
    checkpoints of what is not finished; or the tables of ``published``; or both, where a record of its own comes first.

    The published tables are read once: whoever publishes anew makes a new store.
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
        return self.folder / kind / f"{id}{suffix}"

    def has(self, id: str) -> bool:
        return self._path("records", id, ".json").exists() or id in self._published

    def get(self, id: str) -> Run:
        """A finished stage under the setting that it was trained for."""
        path = self._path("records", id, ".json")
        if not path.exists() and id in self._published:
            return Run(self._published[id][0], self)
        return Run(read_record(path), self)

    def checkpoint(self, id: str) -> Path:
        """Where an unfinished stage keeps its state."""
        return self._path("checkpoints", id, ".pt")

    def pretraining(self, id: str) -> Path:
        """Where a stage keeps the layers that are pretrained, until it is finished."""
        return self._path("checkpoints", id, "-pretraining.pt")

    def begun(self, id: str) -> tuple[Path, ...]:
        """The files that an unfinished stage goes on from, if they are there."""
        return self.checkpoint(id), self.pretraining(id)

    def forget(self, id: str) -> None:
        """Remove what an unfinished stage left behind."""
        for path in self.begun(id):
            remove(path)

    def check(self) -> None:
        """Refuse a folder that cannot be written into, before anything is trained for it."""
        check_folder(self.folder, "--out")
        for kind in ("records", "weights", "arrays", "checkpoints"):
            if (self.folder / kind).exists():
                check_folder(self.folder / kind, "--out")

    def files(self, id: str) -> list[Path]:
        """The record of a finished stage, and what those after it need."""
        return [self._path("records", id, ".json"), self._path("weights", id, ".safetensors")]

    def write(self, record: Mapping[str, Any], weights: Mapping[str, Tensor], arrays: Mapping[str, Tensor]) -> None:
        """Keep a finished stage. The record comes last, with the checksums of the others: what has one is whole."""
        id = str(record["id"])
        files = {"weights": weights, "arrays": arrays}
        sums = {kind: self._save(kind, id, tensors) for kind, tensors in files.items() if tensors}
        for path in self._copies(id):  # of a result that this one replaces
            remove(path)
        write_json(self._path("records", id, ".json"), with_checksum({"format": FORMAT, **record, "sha256": sums}))
        self.forget(id)

    def _copies(self, id: str) -> list[Path]:
        """Records of one result under other settings."""
        return sorted((self.folder / "records").glob(f"{id}-*.json"))

    def add_setting(
        self, id: str, config: Mapping[str, Any], tuned: Mapping[str, Any], purpose: str, command: str
    ) -> None:
        """Keep a record of a finished stage under another setting that it is the result of, unless there is one: a
        search may choose what is usual anyway, and then pages compare one training with others under both."""
        record = self.get(id).record
        setting = {"config": dict(config), "tuned": dict(tuned), "purpose": purpose}
        known = [record, *self._published.get(id, ()), *map(read_record, self._copies(id))]
        if identity(setting) not in [identity({name: one[name] for name in setting}) for one in known]:
            copy = {**record, **setting, "made": {**record["made"], "asked_by": command}}
            write_json(self._path("records", id, f"-{identity(setting)[:8]}.json"), with_checksum(copy))

    def _save(self, kind: str, id: str, tensors: Mapping[str, Tensor]) -> str:
        """Returns the SHA-256 of the file."""
        save = need("safetensors.torch", "lab").save
        content = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
        with write_atomically(self._path(kind, id, ".safetensors")) as file:
            file.write(content)
        return hashlib.sha256(content).hexdigest()

    def weights(self, id: str) -> dict[str, Tensor]:
        path = self._path("weights", id, ".safetensors")
        if not path.exists():
            raise ValueError(f"{path} is missing: delete records/{id}.json to train that stage again")
        return self._load("weights", self.get(id))

    def arrays(self, run: Run) -> dict[str, Tensor]:
        """From a file of their own, or published ones, which may be fewer; empty if there are none."""
        own = self._path("arrays", run.id, ".safetensors").exists()
        return self._load("arrays", run) if own else dict(self._published_arrays.get(run.id, {}))

    def _load(self, kind: str, run: Run) -> dict[str, Tensor]:
        """Tensors, if they are those that were written."""
        path = self._path(kind, run.id, ".safetensors")
        content, remedy = path.read_bytes(), f"delete records/{run.id}.json to train that stage again"
        if hashlib.sha256(content).hexdigest() != run.record["sha256"].get(kind):
            raise ValueError(f"{path} is not what was written, its SHA-256 is not the one in its record: {remedy}")
        try:
            return dict(need("safetensors.torch", "lab").load(content))
        except need("safetensors", "lab").SafetensorError as error:
            raise ValueError(f"{path} is damaged ({error}): {remedy}") from None

    def read(self) -> tuple[list[Run], list[str]]:
        """All runs, one for each setting that a result stands for, in the order of their ids, and a line for each
        record that cannot be read."""
        records: list[dict[str, Any]] = []
        problems: list[str] = []
        paths = sorted((self.folder / "records").glob("*.json"), key=lambda path: path.stem)
        for path in paths:
            try:
                records.append(read_record(path))
            except ValueError as error:
                problems.append(str(error))
        own = {path.stem for path in paths}
        try:
            records += [one for id, some in self._published.items() if id not in own for one in some]
        except ValueError as error:
            problems.append(str(error))
        return [Run(one, self) for one in sorted(records, key=lambda one: str(one["id"]))], problems

    def runs(self) -> list[Run]:
        """The same, where all can be read."""
        runs, problems = self.read()
        if problems:
            raise ValueError(problems[0])
        return runs

    def frame(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each run: what it is, "config.…" and "metrics.…"; a cell is empty where
        an experiment has no such setting or metric."""
        rows = [run.row for run in self.runs()]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = sorted(names, key=lambda name: name.startswith("metrics."))  # experiments have different settings
        return need("pandas", "pandas").DataFrame(rows, columns=columns)
