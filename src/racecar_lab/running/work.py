"""The work of a job: train its stages one after the other, measure each, and write its record."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import racecar
from racecar import pretrain
from racecar.support.processes import is_rank_zero
from racecar_lab.config import Config
from racecar_lab.experiment import Measured, Stage, Task, Trained
from racecar_lab.measures.dead import dead_layers, is_dead
from racecar_lab.running.job import Job
from racecar_lab.running.results import Store
from racecar_lab.running.run import DEAD
from racecar_lab.training import distributed, rng
from racecar_lab.training.checkpoint import drop_damaged
from racecar_lab.training.curves import Diverged, short
from racecar_lab.training.single import Single
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.train import StageOutcome, Trainer
from racecar_lab.training.variants import Variant, variant


@dataclass(frozen=True)
class Maker:
    """The command and environment that make a record, so that a reader can make it again."""

    command: str
    engine: str
    commit: str | None = None
    workers: int | None = None
    """Number of processes, if the engine has several."""

    def to_dict(self, device: str) -> dict[str, Any]:
        """The field ``made`` of a record."""
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


def do(job: Job, store: Store, options: TrainingOptions, maker: Maker) -> None:
    """Train the stages that are not in the store yet. A stage that diverges is recorded as diverged, and so are those
    that start from it."""
    unfinished = job.unfinished(store)
    if not unfinished:
        return
    tasks = job.experiment.data(job.config, job.seed, job.folder)
    for stage in unfinished:
        _do(job, stage, tasks, store, options, maker)


def _do(
    job: Job, stage: Stage, tasks: Mapping[str, Task], store: Store, options: TrainingOptions, maker: Maker
) -> None:
    """Train a stage and write its record. When this returns, the device holds nothing of it."""
    began = time.perf_counter()
    try:
        if note := parent_diverged(job, stage, store):
            raise Diverged(note)
        nets, outcome = _train(job, stage, job.task(tasks, stage), store, options)
        if outcome.note:
            raise Diverged(outcome.note)
        trained = as_trained(job, stage, nets.tasks[0], nets.model, outcome, device=options.device, tasks=tasks)
        write_record = partial(finish, job, trained, outcome, store, maker, began=began)
    except FloatingPointError as error:
        write_record = partial(write, job, stage, store, maker, note=str(error))
    distributed.once(partial(write_record, device=options.device), options.device)


def _train(job: Job, stage: Stage, task: Task, store: Store, options: TrainingOptions) -> tuple[Single, StageOutcome]:
    """Train a stage, from its checkpoint if there is one."""
    id = job.ids[stage.name]
    checkpoint = store.checkpoint(id)
    if not options.resume and is_rank_zero():
        store.forget(id)
    elif is_rank_zero():
        drop_damaged(*store.begun(id))
    distributed.wait()
    model = begin(job, stage, task, store, options.device, fresh=not checkpoint.exists())
    nets = Single(training(job, stage, task, model), options)
    (outcome,) = Trainer(nets, options).run(checkpoint)
    return nets, outcome


def training(job: Job, stage: Stage, task: Task, model: nn.Module) -> Training:
    """The training of a stage, for a model with its initial weights."""
    recipe, config = job.experiment.recipe(job.config, stage), job.config
    recipe = recipe if stage.regularised or recipe.look_always else replace(recipe, looks=0)
    return Training(
        model,
        task,
        config,
        recipe,
        name=stage.name,
        seed=job.seed,
        epochs=stage.epochs or config.epochs,
        variant=_variant(job, stage),
        weight=float(job.weight or 0.0),
        reverse=job.experiment.reverse(config),
        orthogonality=job.experiment.orthogonality(config),
        id=job.ids[stage.name],
    )


def parent_diverged(job: Job, stage: Stage, store: Store) -> str:
    """The note of a stage that cannot start, because the stage that it starts from diverged; empty if it can."""
    parent = job.parent(stage)
    if parent is not None and not store.get(parent).finished:
        return f"stage {stage.after}, which it starts from, diverged"
    return ""


def begin(job: Job, stage: Stage, task: Task, store: Store, device: str, fresh: bool = True) -> nn.Module:
    """The model of a stage, with its initial weights.

    Args:
        fresh: False if a checkpoint has the weights, so that no pretraining is needed.
    """
    torch.manual_seed(rng.seed_of("network", job.experiment.name, job.seed))
    model = _networks(job, stage, store).to(device)
    if stage.after is None and _variant(job, stage).kind == "pretrain" and fresh:
        _pretrain(job, model, task, store.pretraining(job.ids[stage.name]))
    return model


def _variant(job: Job, stage: Stage) -> Variant:
    """The variant that a stage trains: Std in a stage without regulariser."""
    return variant(job.variant, job.experiment.joins) if stage.regularised else variant("Std")


def _networks(job: Job, stage: Stage, store: Store) -> nn.Module:
    """The networks of a stage, as the experiment builds them, from those of the stage that it starts from. In a stage
    without regulariser, the layers of variant Drop stay, with probability 0, so that names in state dicts agree."""
    earlier, dropout = None, float(job.weight or 0.0) if variant(job.variant).kind == "dropout" else 0.0
    if origin := job.origin(stage):
        earlier = _networks(*origin, store)
        earlier.load_state_dict(store.weights(job.ids[origin[1].name]))
    model = job.experiment.networks(job.config, stage, earlier, dropout)
    if variant(job.variant).kind == "dropout":
        layers = [module for module in model.modules() if isinstance(module, nn.modules.dropout._DropoutNd)]
        if dropout and not layers:
            raise ValueError(f"{job.variant}: this network has no hidden layer for dropout, so it would be Std")
        for layer in layers:
            layer.p = layer.p if stage.regularised else 0.0
    return model


def pretraining_lr(config: Config) -> float:
    """The learning rate of pretraining: that of the training, unless it is set."""
    return config.pretrain_lr or config.lr


def _pretrain(job: Job, model: nn.Module, task: Task, checkpoint: Path) -> None:
    """Pretrain a model layer by layer, as variant Pre does; its weight is the number of epochs for each layer.
    Layers that are in the checkpoint are not trained again."""
    epochs, samples = round(job.weight or 0), len(task.train)
    if epochs < 1:
        return
    if isinstance(model, nn.ModuleDict):
        raise ValueError(f"Pre: pretraining is for one network, and this stage has several: {', '.join(model)}")
    batches = [task.train.x[chosen] for chosen in rng.order(samples, job.config.batch, job.seed, "pretrain", 0)]
    layers = job.experiment.reverse(job.config).get("weight")
    names = [name for name, value in layers.items() if value] if isinstance(layers, Mapping) else None
    lr = pretraining_lr(job.config)
    pretrain.greedy(model, batches, epochs=epochs, lr=lr, layers=names, checkpoint=checkpoint, progress=False)


def as_trained(
    job: Job, stage: Stage, task: Task, model: nn.Module, outcome: StageOutcome, device: str, tasks: Mapping[str, Task]
) -> Trained:
    """The trained model as ``Experiment.measure`` gets it.

    Args:
        task: the task of the stage, on the device.
        tasks: all tasks of the experiment, as they were loaded.
    """
    return Trained(
        stage,
        model.eval(),
        task,
        seed=job.seed,
        variant=job.variant,
        device=torch.device(device),
        folder=job.folder,
        history=outcome.history,
        tasks=tasks,
    )


def finish(
    job: Job,
    trained: Trained,
    outcome: StageOutcome,
    store: Store,
    maker: Maker,
    device: str,
    began: float,
    measured: Measured | None = None,
) -> None:
    """Measure a trained model and write its record.

    Args:
        began: ``time.perf_counter()`` at the start of the stage.
        measured: the measurements, if they are made already.
    """
    stage, model = trained.stage, trained.model
    measured = measured or job.experiment.measure(job.config, trained)
    cost = {
        "wall_s": short(time.perf_counter() - began),
        "step_s": short(outcome.step_s),
        "steps": outcome.steps,
        "peak_memory": outcome.peak_memory,
    }
    note, dead = "", None
    if probed := job.experiment.probed(job.config, trained):
        note = DEAD if is_dead(*probed, rebuilds=job.experiment.rebuilds) else ""
        dead = dead_layers(*probed) if stage.regularised else None
    write(
        job,
        stage,
        store,
        maker,
        device=device,
        measured=measured,
        curves=outcome.curves,
        cost=cost,
        model=model,
        note=note,
        dead=dead,
    )


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
    dead: Sequence[str] | None = None,
) -> None:
    """Write the record of a stage, which diverged if there are no measurements.

    Args:
        dead: layers whose input is always zero; None if this was not checked.
    """
    not_finite = [name for name, value in measured.metrics.items() if not math.isfinite(value)] if measured else []
    notes = [note, f"not finite: {', '.join(not_finite)}" if not_finite else ""]
    record = {
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
        "metrics": _numbers(measured.metrics) if measured else {},
        "curves": {} if curves is None or job.experiment.light else curves,
        "tables": _numbers(measured.tables) if measured else {},
        "cost": {name: value for name, value in (cost or {}).items() if value is not None},
        "status": "finished" if measured else "diverged",
        "note": "; ".join(filter(None, notes)),
        "dead": None if dead is None else list(dead),
        "other_data": list(job.other_data),
        "made": maker.to_dict(device),
    }
    weights = model.state_dict() if model is not None and not job.experiment.light else {}
    store.write(record, weights, measured.arrays if measured else {})


def _numbers(value: Any) -> Any:
    """A value for JSON: numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {name: _numbers(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
