"""Do a job: train its stages one after the other, measure each, and put it into the store."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

import racecar
from racecar import pretrain
from racecar.lab import distributed, draws
from racecar.lab.curves import Diverged
from racecar.lab.experiment import Measured, Stage, Task, Trained
from racecar.lab.jobs import Job
from racecar.lab.results import Store
from racecar.lab.train import Options, Outcome, Trainer
from racecar.lab.variants import Regularised, regularise, variant


@dataclass(frozen=True)
class Maker:
    """Who makes a record: what a reader needs to make it again."""

    command: str
    engine: str
    commit: str | None = None

    def to_dict(self, device: str) -> dict[str, Any]:
        return {
            "command": self.command,
            "engine": self.engine,
            "commit": self.commit,
            "racecar": racecar.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU {platform.machine()}",
            "threads": torch.get_num_threads(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def do(job: Job, store: Store, options: Options, maker: Maker) -> None:
    """Train what is not in the store yet. A stage that diverges is recorded as such, and so are those after it."""
    todo = job.unfinished(store)
    if not todo:
        return
    tasks = job.experiment.data(job.config, job.seed, job.folder)
    for stage in todo:
        began = time.perf_counter()
        if note := lost(job, stage, store):
            write(job, stage, store, maker, options.device, note=note)
            continue
        try:
            module = prepare(job, stage, tasks[stage.task], store, options.device)
        except FloatingPointError as error:
            write(job, stage, store, maker, options.device, note=str(error))
            continue
        trainer = Trainer(
            module,
            tasks[stage.task],
            job.config,
            name=stage.name,
            seed=job.seed,
            epochs=stage.epochs or job.config.epochs,
            loss=job.experiment.loss,
            coefficient=strength(job, stage),
            weight_decay=decay(job, stage),
            look=job.experiment.look,
            looks=job.experiment.looks if stage.regularised else 0,
            options=options,
        )
        checkpoint = store.checkpoint(job.ids[stage.name])
        if not options.resume and distributed.first():
            checkpoint.unlink(missing_ok=True)
        distributed.wait()
        try:
            outcome = trainer.run(checkpoint)
        except Diverged as error:
            write(job, stage, store, maker, options.device, note=str(error))
            continue
        finish(job, stage, trainer.task, module.model, outcome, store, maker, options.device, began)
        distributed.wait()


def lost(job: Job, stage: Stage, store: Store) -> str:
    """Why a stage cannot start: what it starts from diverged."""
    parent = job.parent(stage)
    if parent is not None and not store.get(parent).finished:
        return f"stage {stage.after}, which it starts from, diverged"
    return ""


def prepare(job: Job, stage: Stage, task: Task, store: Store, device: str) -> Regularised:
    """The network of a stage with its first weights, and its regulariser."""
    which = variant(job.variant) if stage.regularised else variant("Std")
    torch.manual_seed(draws.seed_of("network", job.experiment.name, job.seed))
    dropout = float(job.coefficient or 0.0) if which.kind == "dropout" else 0.0
    model = job.experiment.network(job.config, dropout=dropout).to(device)
    parent = job.parent(stage)
    if parent is not None:
        model.load_state_dict(store.weights(parent))
    elif which.kind == "pretrain":
        _pretrain(job, model, task)
    example = task.train.x[: min(len(task.train), max(2, job.config.batch or 64))].to(device)
    options = job.experiment.reverse(job.config), job.experiment.orthogonality(job.config)
    return regularise(model, which, example, *options)


def _pretrain(job: Job, model: nn.Module, task: Task) -> None:
    """Pre: its coefficient is the number of epochs for each layer."""
    epochs, samples = round(job.coefficient or 0), len(task.train)
    if epochs < 1:
        return
    batches = [task.train.x[chosen] for chosen in draws.order(samples, job.config.batch, job.seed, "pretrain", 0)]
    layers = job.experiment.reverse(job.config).get("weight")
    names = [name for name, value in layers.items() if value] if isinstance(layers, Mapping) else None
    pretrain.greedy(model, batches, epochs=epochs, lr=job.config.lr, layers=names, progress=False)


def strength(job: Job, stage: Stage) -> float:
    """What the regulariser of a stage is multiplied by."""
    regularising = variant(job.variant).kind in ("reverse", "orthogonality")
    return float(job.coefficient or 0.0) if stage.regularised and regularising else 0.0


def decay(job: Job, stage: Stage) -> float:
    return float(job.coefficient or 0.0) if stage.regularised and variant(job.variant).kind == "decay" else 0.0


def finish(
    job: Job,
    stage: Stage,
    task: Task,
    model: nn.Module,
    outcome: Outcome,
    store: Store,
    maker: Maker,
    device: str,
    began: float,
) -> None:
    """Measure a trained model and put it into the store."""
    if not distributed.first():
        return
    model.eval()
    trained = Trained(stage, model, task, job.seed, job.variant, torch.device(device), job.folder, outcome.history)
    measured = job.experiment.measure(job.config, trained)
    cost = {
        "wall_s": time.perf_counter() - began,
        "step_s": outcome.seconds / max(1, outcome.steps),
        "steps": outcome.steps,
        "peak_memory": outcome.peak_memory,
    }
    write(job, stage, store, maker, device, measured, outcome.curves, cost, model)


def write(
    job: Job,
    stage: Stage,
    store: Store,
    maker: Maker,
    device: str,
    measured: Measured | None = None,
    curves: Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    note: str = "",
) -> None:
    """One record; without measurements, of a stage that diverged."""
    if not distributed.first():
        return
    record = {
        "id": job.ids[stage.name],
        "parent": job.parent(stage),
        "experiment": job.experiment.name,
        "variant": job.variant,
        "coefficient": job.coefficient,
        "seed": job.seed,
        "stage": stage.name,
        "task": stage.task,
        "regularised": stage.regularised,
        "config": job.base.to_dict(),
        "tuned": dict(job.tuned),
        "metrics": measured.metrics if measured else {},
        "curves": curves or {},
        "tables": measured.tables if measured else {},
        "cost": cost or {},
        "status": "finished" if measured else "diverged",
        "note": note,
        "made": maker.to_dict(device),
    }
    store.write(record, model.state_dict() if model is not None else {}, measured.arrays if measured else {})
