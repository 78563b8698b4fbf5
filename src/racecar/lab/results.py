"""The results store: one record for each finished stage; nothing is written twice, nothing is lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from racecar.extras import need
from racecar.files import remove, write_atomically, write_json
from racecar.lab.config import GUIDES, added
from racecar.lab.packed import packed
from racecar.lab.record import FORMAT, read_record

DEAD = "dead: the output is the same for every input"
"""Noted of a finished net."""


def identity(what: Mapping[str, Any]) -> str:
    """A name for a result: a hash of all that determines it."""
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished stage, as the store holds it."""

    record: dict[str, Any]
    store: Store | None = None

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def variant(self) -> str:
        return str(self.record["variant"])

    @property
    def coefficient(self) -> float | None:
        value = self.record["coefficient"]
        return None if value is None else float(value)

    @property
    def seed(self) -> int:
        return int(self.record["seed"])

    @property
    def stage(self) -> str:
        return str(self.record["stage"])

    @property
    def config(self) -> dict[str, Any]:
        """How it was made, with what holds for fields that came after the record."""
        given, later = how(self.record["config"]), added(str(self.record.get("experiment")))
        return {**given, **{name: value for name, value in later.items() if name not in given}}

    @property
    def metrics(self) -> dict[str, float]:
        """Those that are numbers."""
        return {name: value for name, value in self.record["metrics"].items() if value is not None}

    @property
    def tables(self) -> dict[str, Any]:
        return dict(self.record.get("tables") or {})

    @property
    def finished(self) -> bool:
        return bool(self.record["status"] == "finished")

    @property
    def dead(self) -> bool:
        """Whether the output hangs on nothing any more, or a layer sees nothing but zeros, as far as the record says:
        older ones say nothing of the layers."""
        return DEAD in str(self.record.get("note") or "") or bool(self.record.get("dead"))

    @property
    def everywhere(self) -> list[Run]:
        """This run under every setting that it was asked for: a search may choose what is usual anyway, and then one
        result stands for both."""
        others = [Run({**self.record, **one}, self.store) for one in self.record.get("also") or ()]
        return [self, *others]

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """Small tensors for figures; empty if there are none."""
        return {} if self.store is None else self.store.arrays(self.id)


def how(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration says how a run is made."""
    return {name: value for name, value in config.items() if name not in GUIDES}


class Store:
    """A folder of records, weights and arrays. Records are files of their own, or lines of a pack (see ``packed``)."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def _path(self, kind: str, id: str, suffix: str) -> Path:
        return self.folder / kind / f"{id}{suffix}"

    def has(self, id: str) -> bool:
        return self._path("records", id, ".json").exists() or id in packed(self.folder)

    def get(self, id: str) -> Run:
        path = self._path("records", id, ".json")
        if not path.exists() and id in packed(self.folder):
            return Run(packed(self.folder)[id], self)
        record = read_record(path)
        if record["id"] != id:
            raise ValueError(f"{path} is the record of {record['id']}; delete it to train that stage again")
        return Run(record, self)

    def checkpoint(self, id: str) -> Path:
        """Where an unfinished stage keeps its state."""
        return self._path("checkpoints", id, ".pt")

    def pretraining(self, id: str) -> Path:
        """Where a stage keeps the layers that are pretrained, until it is finished."""
        return self._path("checkpoints", id, "-pretraining.pt")

    def forget(self, id: str) -> None:
        """Remove what an unfinished stage left behind."""
        for path in (self.checkpoint(id), self.pretraining(id)):
            remove(path)

    def files(self, id: str) -> list[Path]:
        """The record of a finished stage, and what those after it need."""
        return [self._path("records", id, ".json"), self._path("weights", id, ".safetensors")]

    def write(self, record: Mapping[str, Any], weights: Mapping[str, Tensor], arrays: Mapping[str, Tensor]) -> None:
        """Keep a finished stage. The record comes last: what has one is whole."""
        id = str(record["id"])
        for kind, tensors in (("weights", weights), ("arrays", arrays)):
            if tensors:
                self._save(self._path(kind, id, ".safetensors"), tensors)
        write_json(self._path("records", id, ".json"), {"format": FORMAT, **record})
        self.forget(id)

    def ask(self, id: str, config: Mapping[str, Any], tuned: Mapping[str, Any], command: str) -> None:
        """Note in the record of a finished stage that it is also the result of this setting, unless it says so."""
        run, asked = self.get(id), {"config": how(config), "tuned": tuned}
        known = [{"config": one.config, "tuned": one.record.get("tuned") or {}} for one in run.everywhere]
        if identity(asked) not in map(identity, known):
            also = [*(run.record.get("also") or ()), {"config": config, "tuned": tuned, "command": command}]
            write_json(self._path("records", id, ".json"), {**run.record, "also": also})

    def _save(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        save = need("safetensors.torch", "lab").save
        with write_atomically(path) as file:
            file.write(save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}))

    def weights(self, id: str) -> dict[str, Tensor]:
        path = self._path("weights", id, ".safetensors")
        if not path.exists():
            raise ValueError(f"{path} is missing: delete records/{id}.json to train that stage again")
        return self._load(path)

    def arrays(self, id: str) -> dict[str, Tensor]:
        path = self._path("arrays", id, ".safetensors")
        return self._load(path) if path.exists() else {}

    def _load(self, path: Path) -> dict[str, Tensor]:
        load = need("safetensors.torch", "lab").load_file
        try:
            return dict(load(path))
        except need("safetensors", "lab").SafetensorError as error:
            remedy = f"delete records/{path.stem}.json to train that stage again"
            raise ValueError(f"{path} is damaged ({error}): {remedy}") from None

    def runs(self) -> Iterator[Run]:
        """All records, in the order of their names; of one that is both packed and a file of its own, the file."""
        singles = {path.stem: path for path in (self.folder / "records").glob("*.json")}
        pack = packed(self.folder)
        for id in sorted(singles.keys() | pack.keys()):
            yield Run(read_record(singles[id]) if id in singles else pack[id], self)
