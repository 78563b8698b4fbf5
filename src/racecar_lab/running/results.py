"""The results store: one record for each finished stage; nothing is written twice, nothing is lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from racecar.support.extras import need
from racecar.support.files import check_folder, remove, write_atomically, write_json
from racecar_lab.running.packed import packed
from racecar_lab.running.packed_arrays import packed_arrays
from racecar_lab.running.record import FORMAT, read_record, with_checksum
from racecar_lab.running.run import ASKED, Run, how


def identity(what: Mapping[str, Any]) -> str:
    """A name for a result: a hash of all that determines it."""
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """A folder of records, weights and arrays. Records and arrays have files of their own or lie in a pack (see
    ``packed`` and ``packed_arrays``)."""

    def __init__(self, folder: Path | str) -> None:
        import racecar_lab.experiments  # noqa: F401  they say which of their fields are younger than their records

        self.folder = Path(folder)

    def _path(self, kind: str, id: str, suffix: str) -> Path:
        return self.folder / kind / f"{id}{suffix}"

    def has(self, id: str) -> bool:
        return self._path("records", id, ".json").exists() or id in packed(self.folder)

    def get(self, id: str) -> Run:
        path = self._path("records", id, ".json")
        if not path.exists() and (record := packed(self.folder).get(id)) is not None:
            if isinstance(record, str):
                raise ValueError(record)
            return Run(record, self)
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
        whole = {"format": FORMAT, **record, **({"sha256": sums} if sums else {})}
        write_json(self._path("records", id, ".json"), with_checksum(whole))
        self.forget(id)

    def ask(
        self, id: str, config: Mapping[str, Any], tuned: Mapping[str, Any], command: str, purpose: str = ""
    ) -> None:
        """Note in the record of a finished stage that it is also the result of this setting, unless it says so."""
        run = self.get(id)
        known = [(one.config, one.record.get("tuned") or {}, one.purpose) for one in run.everywhere]
        if _same((how(str(run.record["experiment"]), config), tuned, purpose)) not in map(_same, known):
            asked = dict(zip(ASKED, (config, tuned, command, purpose), strict=True))
            also = [*(run.record.get("also") or ()), asked]
            write_json(self._path("records", id, ".json"), with_checksum({**run.record, "also": also}))

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
        """From a file of their own, or from a pack, whose tensors may be fewer; empty if there are none."""
        own = self._path("arrays", run.id, ".safetensors").exists()
        return self._load("arrays", run) if own else packed_arrays(self.folder, run.id)

    def _load(self, kind: str, run: Run) -> dict[str, Tensor]:
        """Tensors, if they are those that were written: older records do not say."""
        path = self._path(kind, run.id, ".safetensors")
        content, written = path.read_bytes(), (run.record.get("sha256") or {}).get(kind)
        remedy = f"delete records/{run.id}.json to train that stage again"
        if written is not None and hashlib.sha256(content).hexdigest() != written:
            raise ValueError(f"{path} is not what was written, its SHA-256 is not the one in its record: {remedy}")
        try:
            return dict(need("safetensors.torch", "lab").load(content))
        except need("safetensors", "lab").SafetensorError as error:
            raise ValueError(f"{path} is damaged ({error}): {remedy}") from None

    def read(self) -> tuple[list[Run], list[str]]:
        """All runs whose records can be read, in the order of their names, and a line for each one that cannot; of one
        that is both packed and a file of its own, the file."""
        singles = {path.stem: path for path in (self.folder / "records").glob("*.json")}
        pack, runs, problems = packed(self.folder), [], []
        for id in sorted(singles.keys() | pack.keys()):
            try:
                record = read_record(singles[id]) if id in singles else pack[id]
            except ValueError as error:
                record = str(error)
            if isinstance(record, str):
                problems.append(record)
            else:
                runs.append(Run(record, self))
        return runs, problems

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


def _same(asked: tuple[Mapping[str, Any], Mapping[str, Any], str]) -> str:
    """The same name for the same configuration, settings from a search and purpose."""
    return identity(dict(zip(("config", "tuned", "purpose"), asked, strict=True)))
