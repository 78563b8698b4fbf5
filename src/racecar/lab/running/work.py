"""Do a job: train its stages one after the other, measure each, and put it into the store."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import racecar
from racecar import pretrain
from racecar.lab.experiment import Measured, Stage, Task, Trained
from racecar.lab.measures.dead import PROBED, dead_layers, is_dead
from racecar.lab.running.jobs import Job
from racecar.lab.running.results import Store
from racecar.lab.running.run import DEAD
from racecar.lab.training import distributed, rng
from racecar.lab.training.curves import Diverged, short
from racecar.lab.training.train import Options, Outcome, Trainer
from racecar.lab.training.variants import Regularised, Variant, regularise, variant
from racecar.support.processes import is_rank_zero


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
        _do(job, stage, tasks[stage.task], store, options, maker)


def _do(job: Job, stage: Stage, task: Task, store: Store, options: Options, maker: Maker) -> None:
    """One stage, of which nothing is left on the device when the next one begins."""
    began = time.perf_counter()
    try:
        if note := lost(job, stage, store):
            raise Diverged(note)
        trainer, outcome = _train(job, stage, task, store, options)
        keep = partial(finish, job, stage, trainer.task, trainer.module.model, outcome, store, maker, began=began)
    except FloatingPointError as error:
        keep = partial(write, job, stage, store, maker, note=str(error))
    distributed.once(partial(keep, device=options.device), options.device)


def _train(job: Job, stage: Stage, task: Task, store: Store, options: Options) -> tuple[Trainer, Outcome]:
    checkpoint = store.checkpoint(job.ids[stage.name])
    if not options.resume and is_rank_zero():
        store.forget(job.ids[stage.name])
    distributed.wait()
    trainer = Trainer(
        prepare(job, stage, task, store, options.device, fresh=not checkpoint.exists()),
        task,
        job.config,
        name=stage.name,
        seed=job.seed,
        epochs=stage.epochs or job.config.epochs,
        loss=job.experiment.loss,
        shift=job.experiment.shift(job.config),
        flip=job.experiment.flips(job.config),
        coefficient=strength(job, stage),
        fade=job.experiment.fades(job.config),
        weight_decay=decay(job, stage),
        look=job.experiment.look,
        looks=job.experiment.looks if stage.regularised else 0,
        steady=job.experiment.steady,
        options=options,
    )
    return trainer, trainer.run(checkpoint)


def lost(job: Job, stage: Stage, store: Store) -> str:
    """Why a stage cannot start: what it starts from diverged."""
    parent = job.parent(stage)
    if parent is not None and not store.get(parent).finished:
        return f"stage {stage.after}, which it starts from, diverged"
    return ""


def prepare(job: Job, stage: Stage, task: Task, store: Store, device: str, fresh: bool = True) -> Regularised:
    """The network of a stage with its first weights, and its regulariser; arguments as in ``begin``."""
    return constrain(job, stage, task, begin(job, stage, task, store, device, fresh))


def begin(job: Job, stage: Stage, task: Task, store: Store, device: str, fresh: bool = True) -> nn.Module:
    """The network of a stage with its first weights.

    Args:
        fresh: False where a checkpoint brings the weights, so that they need no pretraining.
    """
    torch.manual_seed(rng.seed_of("network", job.experiment.name, job.seed))
    model = _network(job, stage).to(device)
    parent = job.parent(stage)
    if parent is not None:
        model.load_state_dict(store.weights(parent))
    elif _variant(job, stage).kind == "pretrain" and fresh:
        _pretrain(job, model, task, store.pretraining(job.ids[stage.name]))
    return model


def constrain(job: Job, stage: Stage, task: Task, model: nn.Module) -> Regularised:
    """A network with the regulariser of a stage, on the device that it is on."""
    device = next(model.parameters()).device
    example = task.train.x[: min(len(task.train), max(2, job.config.batch or 64))].to(device)
    which = _variant(job, stage)
    options = job.experiment.reverse(job.config), job.experiment.orthogonality(job.config)
    return regularise(model, which, example, *options, every=job.config.every)


def _variant(job: Job, stage: Stage) -> Variant:
    return variant(job.variant) if stage.regularised else variant("Std")


def _network(job: Job, stage: Stage) -> nn.Module:
    """Dropout that a variant brings along stays in its place without regulariser, but off: names are the same."""
    if variant(job.variant).kind != "dropout":
        return job.experiment.network(job.config)
    model = job.experiment.network(job.config, dropout=float(job.coefficient or 0.0))
    places = [module for module in model.modules() if isinstance(module, nn.modules.dropout._DropoutNd)]
    if job.coefficient and not places:
        raise ValueError(f"{job.variant}: this network has no hidden layer for dropout, so it would be Std")
    for module in places:
        if not stage.regularised:
            module.p = 0.0
    return model


def _pretrain(job: Job, model: nn.Module, task: Task, checkpoint: Path) -> None:
    """Pre: its coefficient is the number of epochs for each layer. Layers that the checkpoint holds are not trained
    again."""
    epochs, samples = round(job.coefficient or 0), len(task.train)
    if epochs < 1:
        return
    batches = [task.train.x[chosen] for chosen in rng.order(samples, job.config.batch, job.seed, "pretrain", 0)]
    layers = job.experiment.reverse(job.config).get("weight")
    names = [name for name, value in layers.items() if value] if isinstance(layers, Mapping) else None
    pretrain.greedy(
        model, batches, epochs=epochs, lr=job.config.lr, layers=names, checkpoint=checkpoint, progress=False
    )


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
    model.eval()
    trained = Trained(stage, model, task, job.seed, job.variant, torch.device(device), job.folder, outcome.history)
    measured = job.experiment.measure(job.config, trained)
    cost = {
        "wall_s": short(time.perf_counter() - began),
        "step_s": short(outcome.step_s),
        "steps": outcome.steps,
        "peak_memory": outcome.peak_memory,
    }
    seen = task.train.x[:PROBED]
    note, dead = DEAD if is_dead(model, seen) else "", dead_layers(model, seen) if stage.regularised else None
    write(job, stage, store, maker, device, measured, outcome.curves, cost, model, note, dead)


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
    """One record; without measurements, of a stage that diverged. Where nobody looked for dead layers, it says nothing
    of them."""
    lost = [name for name, value in measured.metrics.items() if not math.isfinite(value)] if measured else []
    notes = [note, f"not finite: {', '.join(lost)}" if lost else ""]
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
        "purpose": job.purpose,
        "config": job.base.to_dict(),
        "tuned": dict(job.tuned),
        "metrics": _numbers(measured.metrics) if measured else {},
        "curves": {} if curves is None or job.experiment.light else curves,
        "tables": _numbers(measured.tables) if measured else {},
        "cost": cost or {},
        "status": "finished" if measured else "diverged",
        "note": "; ".join(filter(None, notes)),
        **({} if dead is None else {"dead": list(dead)}),
        "made": maker.to_dict(device),
    }
    weights = model.state_dict() if model is not None and not job.experiment.light else {}
    store.write(record, weights, measured.arrays if measured else {})


def _numbers(value: Any) -> Any:
    """With null, which JSON knows, for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: _numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
