"""Writes the records of finished and diverged stages into a store."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

import racecar
from racecar_lab.running.job import Job
from racecar_lab.running.results import Store
from racecar_lab.stage import Measured, Stage


@dataclass(frozen=True)
class Maker:
    """The command and environment that make a record, which are written into it, so that it can be made again."""

    command: str
    engine: str
    commit: str | None = None
    workers: int | None = None
    """Number of processes, if the engine has several."""

    def to_dict(self, device: str) -> dict[str, Any]:
        """The value of a record's field ``made``: command, engine, commit, versions, device and time."""
        return {
            "command": self.command,
            "engine": self.engine,
            "commit": self.commit,
            "racecar": racecar.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU {platform.machine()}",
            "threads": torch.get_num_threads(),
            **({} if self.workers is None else {"workers": self.workers}),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }


@dataclass(frozen=True)
class RecordWriter:
    """Writes the records of trained stages, each with the command, versions and device that made it."""

    store: Store
    maker: Maker
    device: str

    def finished(
        self,
        job: Job,
        stage: Stage,
        measured: Measured,
        *,
        cost: Mapping[str, Any],
        curves: Mapping[str, Any] | None = None,
        model: nn.Module | None = None,
        note: str = "",
        dead: Sequence[str] | None = None,
    ) -> None:
        """Write the record of a stage with its measurements.

        Args:
            cost: time and memory by name; those that are None are left out.
            model: the trained model, whose weights are kept, too.
            dead: layers whose input is always zero; None if this was not checked.
        """
        not_finite = [name for name, value in measured.metrics.items() if not math.isfinite(value)]
        notes = [note, f"not finite: {', '.join(not_finite)}" if not_finite else ""]
        self.store.write(
            {
                **self._record(job, stage),
                "metrics": _numbers(measured.metrics),
                "curves": {} if curves is None or stage.light else curves,
                "tables": _numbers(measured.tables),
                "cost": {name: value for name, value in cost.items() if value is not None},
                "status": "finished",
                "note": "; ".join(filter(None, notes)),
                "dead": None if dead is None else list(dead),
            },
            {} if model is None or stage.light else model.state_dict(),
            measured.arrays,
        )

    def diverged(self, job: Job, stage: Stage, note: str) -> None:
        """Write the record of a stage that diverged; ``note`` says how."""
        empty: dict[str, Any] = {"metrics": {}, "curves": {}, "tables": {}, "cost": {}, "dead": None}
        self.store.write({**self._record(job, stage), **empty, "status": "diverged", "note": note}, {}, {})

    def _record(self, job: Job, stage: Stage) -> dict[str, Any]:
        """The fields of a stage's record that are known before the training."""
        return {
            "id": job.ids[stage.name],
            "parent": job.parent(stage),
            "experiment": job.experiment.name,
            "variant": job.variant,
            "weight": job.weight,
            "seed": job.seed,
            "stage": stage.name,
            "task": stage.task,
            "regularised": stage.regularised,
            "purpose": job.purpose,
            "config": job.base.to_record(),
            "tuned": dict(job.tuned),
            "other_data": list(job.other_data),
            "made": self.maker.to_dict(self.device),
        }


def _numbers(value: Any) -> Any:
    """A value in a form for JSON: numbers that are not finite, also inside of lists and mappings, become None."""
    if isinstance(value, Mapping):
        return {name: _numbers(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
