"""Racecar training in Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from racecar.every import check_every
from racecar.inspect import PlasticityLog
from racecar.integrations.attached import Attached
from racecar.racecar import Racecar
from racecar.support.extras import need
from racecar.support.torch_private import map_tensors
from racecar.watch.batches import ExampleInputs


class RacecarMixin:
    """A mixin for ``transformers.Trainer`` classes, named before them, that adds the racecar loss to the training.

        class MyTrainer(RacecarMixin, Trainer): ...
        trainer = MyTrainer(model, args, train_dataset=data, racecar={"weight": 0.01, "until": 2})

    Calls of the model return what they did before, in DDP, too; evaluation, ``generate`` and checkpoints do not change.
    With gradient accumulation the racecar loss is the mean over the batches, as the task's loss is. Tokens that
    ``attention_mask`` hides do not count. Loss and terms are logged with the task's, as "racecar/loss" and
    "racecar/LAYER".

    Args:
        racecar: keyword arguments of ``Racecar`` (weight, mode, fraction, …) and two more: "every", to run the reverse
            pass in every k-th call only, and "until", the epoch from which on the racecar loss is left out.
        args, kwargs: arguments of the trainer.
    """

    model: Any
    accelerator: Any
    args: Any
    state: Any
    compute_loss_func: Any
    model_accepts_loss_kwargs: bool

    def __init__(self, *args: Any, racecar: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.racecar = dict(racecar or {})
        self._until = self.racecar.pop("until", None)
        self._racecar_loss = torch.zeros(())
        self.attached: Attached | None = None
        """The Attached of the current or last training; None before the first."""

    @property
    def rr(self) -> Racecar | None:
        """The Racecar that runs the reverse pass, with plan, terms and ``reconstruct``; None before the first step."""
        return None if self.attached is None else self.attached.rr

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as the Trainer does, with the racecar loss attached to the model meanwhile; also detached on errors."""
        # Attached before Accelerate replaces the model's forward by one with autocast.
        self.attached = Attached(self.accelerator.unwrap_model(self.model), **self.racecar)
        try:
            return super().train(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.attached.detach()

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None, **kwargs: Any
    ) -> Any:
        attached = self._follow(model)
        result = super().compute_loss(  # type: ignore[misc]
            model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch, **kwargs
        )
        if attached is None or not (model.training and torch.is_grad_enabled()):
            return result
        loss, outputs = result if return_outputs else (result, None)
        racecar_loss = attached.loss()
        self._racecar_loss = racecar_loss.detach()
        if self._scaled(num_items_in_batch):  # the trainer will not divide the loss by the number of batches
            racecar_loss = racecar_loss / _batches(self)
        loss = loss + racecar_loss.to(loss.device)
        return (loss, outputs) if return_outputs else loss

    def _follow(self, model: Any) -> Attached | None:
        """The Attached of the network that is trained now, set for this step; None outside of ``train``."""
        if self.attached is None or not self.attached.active:
            return None
        network = self.accelerator.unwrap_model(model)
        if network is not self.attached.network:  # ``model_init`` makes a new one for every training
            self.attached.detach()
            self.attached = Attached(network, **self.racecar)
        if not self.attached.calls:  # after resuming, ``every`` goes on where it was
            self.attached.calls = self.state.global_step * self.args.gradient_accumulation_steps
        self.attached.on = self._until is None or (self.state.epoch or 0.0) < self._until
        return self.attached

    def _scaled(self, items: Any) -> bool:
        """True if the loss is divided by the number of accumulated batches already, so that the trainer does not do it
        again: the rule of its own ``training_step``."""
        is_scaled = getattr(self, "loss_is_scaled_for_ga", None)
        if is_scaled is not None:
            return bool(is_scaled)
        return (self.model_accepts_loss_kwargs and items is not None) or self.compute_loss_func is not None

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        attached = self.attached
        if "loss" in logs and attached is not None and attached.on and attached.rr is not None:
            logs["racecar/loss"] = float(self._racecar_loss)
            logs |= {f"racecar/{name or 'network'}": float(term) for name, term in attached.rr.terms.items()}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]


def _batches(trainer: Any) -> int:
    """The number of batches that one optimiser step accumulates."""
    return int(getattr(trainer, "current_gradient_accumulation_steps", trainer.args.gradient_accumulation_steps))


class PlasticityEvents:
    """A callback that measures the model's plasticity during training; ``PlasticityCallback`` is it for a Trainer.

        watch = PlasticityCallback({"input_ids": ids, "attention_mask": mask}, every=500)
        trainer = Trainer(model, args, train_dataset=data, callbacks=[watch])
        trainer.train()
        print(watch.plasticity)

    Args:
        inputs: a few dozen samples to measure on, in the form in which the model is called.
        every: optimiser steps between two measurements.
        logger: as for :class:`racecar.inspect.PlasticityLog`.
    """

    def __init__(self, inputs: ExampleInputs, *, every: int = 500, logger: Any = None) -> None:
        super().__init__()
        self.inputs, self.every, self.logger = inputs, check_every(every), logger
        self.plasticity: PlasticityLog | None = None
        """The measurements; None before the first training. A later training continues it."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.plasticity is None:
            inputs = map_tensors(lambda tensor: tensor.to(args.device), self.inputs)
            self.plasticity = PlasticityLog(model, inputs, every=self.every, logger=self.logger)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.plasticity is not None
        self.plasticity.step()


_CLASSES = {"RacecarTrainer": (RacecarMixin, "Trainer"), "PlasticityCallback": (PlasticityEvents, "TrainerCallback")}


def __getattr__(name: str) -> Any:
    """Make ``RacecarTrainer`` or ``PlasticityCallback`` on first use, a subclass of the mixin and transformers' class,
    so that this module can be imported without transformers."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    mixin, base_name = _CLASSES[name]
    base = getattr(need("transformers", "transformers"), base_name)
    subclass = type(name, (mixin, base), {"__doc__": mixin.__doc__, "__module__": __name__})
    globals()[name] = subclass
    return subclass
