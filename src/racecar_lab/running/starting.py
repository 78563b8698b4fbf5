"""The start of a stage: its model with the initial weights, and its ``Training``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from racecar import pretrain
from racecar_lab.config import Config
from racecar_lab.running.job import Job
from racecar_lab.running.results import Store
from racecar_lab.stage import Stage
from racecar_lab.task import Task
from racecar_lab.training import rng
from racecar_lab.training.spec import Training
from racecar_lab.training.variants import OwnVariant, Variant, variant


def training(job: Job, stage: Stage, task: Task, model: nn.Module) -> Training:
    """Everything that determines the training of a stage, for a model with its initial weights."""
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
        reverse={"fraction": config.fraction, **job.experiment.reverse(config)},
        orthogonality=job.experiment.orthogonality(config),
        id=job.ids[stage.name],
    )


def begin(job: Job, stage: Stage, task: Task, store: Store, device: str, fresh: bool = True) -> nn.Module:
    """The model of a stage on the device, with its initial weights: drawn from the seed, pretrained, or of the stage
    that it starts from.

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
    return job.experiment.variant(job.variant) if stage.regularised else variant("Std")


def _networks(job: Job, stage: Stage, store: Store) -> nn.Module:
    """The networks of a stage, as the experiment builds them, from those of the stage that it starts from. In a stage
    without regulariser, the layers of variant Drop stay, with probability 0, so that names in state dicts agree."""
    which = job.experiment.variant(job.variant)
    earlier, dropout = None, float(job.weight or 0.0) if which.kind == "dropout" else 0.0
    if origin := job.origin(stage):
        earlier = _networks(*origin, store)
        earlier.load_state_dict(store.weights(job.ids[origin[1].name]))
    model = job.experiment.networks(job.config, stage, earlier, dropout)
    if isinstance(which, OwnVariant) and stage.regularised:
        assert isinstance(model, nn.ModuleDict)
        model.update({name: make(job.config) for name, make in which.networks.items() if name not in model})
    if which.kind == "dropout":
        layers = [module for module in model.modules() if isinstance(module, nn.modules.dropout._DropoutNd)]
        if dropout and not layers:
            raise ValueError(f"{job.variant}: this network has no hidden layer for dropout, so it would be Std")
        for layer in layers:
            layer.p = layer.p if stage.regularised else 0.0
    return model


def pretraining_lr(config: Config) -> float:
    """The learning rate of variant Pre's pretraining: ``pretrain_lr``, or if that is 0 the learning rate of the
    training."""
    return config.pretrain_lr or config.lr


def _pretrain(job: Job, model: nn.Module, task: Task, checkpoint: Path) -> None:
    """Pretrain a model layer by layer, as variant Pre does; the job's λ is then the number of epochs for each layer.
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
