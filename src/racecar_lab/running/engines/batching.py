"""Divides jobs into groups that can be trained as one batched net, and names their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from racecar_lab.running.job import Job
from racecar_lab.running.results import Store, identity
from racecar_lab.running.starting import pretraining_lr
from racecar_lab.stage import Stage

AT_ONCE = 256
"""Maximal number of nets in one batched net."""


def groups_of(jobs: Sequence[Job]) -> list[list[Job]]:
    """Divide jobs into groups, each of which can be trained as one batched net: they agree in all but seed, λ, fold and
    the settings in ``stackable``."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        clusters = job.experiment.clusters
        may_differ = {*job.config.stackable, clusters and clusters.field}
        shared = {name: value for name, value in job.config.to_dict().items() if name not in may_differ}
        key = identity({"experiment": job.experiment.name, "variant": job.variant, "config": shared})
        groups.setdefault(key, []).append(job)
    for group in groups.values():
        group.sort(key=_optimiser_key)
    return [group[i : i + AT_ONCE] for group in groups.values() for i in range(0, len(group), AT_ONCE)]


def _optimiser_key(job: Job) -> tuple[float, ...]:
    """Settings of a job's optimiser as a key; jobs with the same key share an optimiser."""
    decay = job.weight if job.experiment.variant(job.variant).kind == "decay" else None
    return job.config.lr, job.config.weight_decay, decay or 0.0


def pretraining_key(job: Job) -> str:
    """Key of a job's pretraining; jobs with the same key share one pretraining, whatever the learning rates of their
    training."""
    shared = {name: value for name, value in job.config.to_dict().items() if name not in ("lr", "weight_decay")}
    shared["pretrain_lr"] = pretraining_lr(job.config)
    return identity({"seed": job.seed, "epochs": job.weight, "config": shared})


def data_key(job: Job) -> tuple[int, Any]:
    """Seed of a job, and its fold if there are folds; jobs of a group that share them share their data."""
    clusters = job.experiment.clusters
    return job.seed, clusters and clusters.of(job.config)


def checkpoint_of(jobs: Sequence[Job], stage: Stage, store: Store) -> Path:
    """Path of the checkpoint of the batched net that trains a stage of these jobs."""
    return store.checkpoint(f"vmap-{identity({'ids': [job.ids[stage.name] for job in jobs]})}")


def checkpoints(jobs: Sequence[Job], store: Store) -> list[Path]:
    """Paths of the checkpoints of the batched nets that these jobs are trained as; there are files for those begun and
    not finished."""
    return [checkpoint_of(part, stage, store) for part in groups_of(jobs) for stage in part[0].stages]


def refuse(job: Job, device: str) -> None:
    """Raise a ValueError if torch cannot train a job in a batched net on this device."""
    config, network = job.config, job.experiment.networks(job.config, job.stages[0], None)
    turns = [turn.network for stage in job.stages for turn in job.experiment.recipe(config, stage).turns]
    drops = (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in network.modules())
    norms = (isinstance(m, nn.modules.batchnorm._BatchNorm) and m.momentum is None for m in network.modules())
    kinds = nn.LSTM if device == "cpu" else nn.RNNBase  # these run as one fused kernel, which vmap cannot batch
    fused = sorted({type(module).__name__ for module in network.modules() if isinstance(module, kinds)})
    refused = {
        f"{', '.join(fused)} on {device}, which torch cannot batch": bool(fused),
        "dropout": job.experiment.variant(job.variant).kind == "dropout" or any(drops),
        "batch norm without momentum": any(norms),
        f"precision={config.precision}": config.precision != "float32",
        "ema": bool(config.ema),
        f"networks that take turns ({', '.join(dict.fromkeys(turns))})": len(turns) > 1 or any(turns),
    }
    for feature, refuse in refused.items():
        if refuse:
            raise ValueError(f"the vmap engine does not do {feature}: use --engine here")
