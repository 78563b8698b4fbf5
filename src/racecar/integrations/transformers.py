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
    """Add the racecar loss to what a ``transformers.Trainer`` trains; it stands before the trainer's class.

        class MyTrainer(RacecarMixin, Trainer): ...
        trainer = MyTrainer(model, args, train_dataset=data, racecar={"weight": 0.01, "until": 2})

    The model is called as ever, in DDP, too; evaluation, ``generate`` and checkpoints know nothing of it. With
    accumulation the racecar loss is the mean over the batches, as the task's. Tokens that ``attention_mask`` hides do
    not count. Its loss and terms are logged beside the task's, as "racecar/loss" and "racecar/LAYER".

    Args:
        racecar: settings as ``Racecar`` takes them, weight, mode, fraction …; "every": the reverse pass in every k-th
            call alone; "until": epoch from which on the loss is left out, for a second phase of training.
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
        """Of the last training, or the one that runs now."""

    @property
    def rr(self) -> Racecar | None:
        """What runs backwards, from the first training step on: its plan, terms, ``reconstruct``."""
        return None if self.attached is None else self.attached.rr

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As every trainer's. Before and after it, and after an error, the model is a plain one."""
        # Attached before Accelerate puts its own forward, with autocast, over the model's.
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
        own = attached.loss()
        self._racecar_loss = own.detach()
        if self._scaled(num_items_in_batch):  # by the items of all batches, so that nobody divides by their number
            own = own / _batches(self)
        loss = loss + own.to(loss.device)
        return (loss, outputs) if return_outputs else loss

    def _follow(self, model: Any) -> Attached | None:
        """What is attached to the network that is trained now; None outside of ``train``."""
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
        """Whether the trainer takes a loss as it is, although it is one of several batches; as in its training_step."""
        told = getattr(self, "loss_is_scaled_for_ga", None)
        if told is not None:
            return bool(told)
        return (self.model_accepts_loss_kwargs and items is not None) or self.compute_loss_func is not None

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        attached = self.attached
        if "loss" in logs and attached is not None and attached.on and attached.rr is not None:
            logs["racecar/loss"] = float(self._racecar_loss)
            logs |= {f"racecar/{name or 'network'}": float(term) for name, term in attached.rr.terms.items()}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]


def _batches(trainer: Any) -> int:
    """That one step accumulates."""
    return int(getattr(trainer, "current_gradient_accumulation_steps", trainer.args.gradient_accumulation_steps))


class PlasticityEvents:
    """Watch whether what a Trainer trains is losing its plasticity: the callback ``PlasticityCallback`` of this module.

        watch = PlasticityCallback({"input_ids": ids, "attention_mask": mask}, every=500)
        trainer = Trainer(model, args, train_dataset=data, callbacks=[watch])
        trainer.train()
        print(watch.plasticity)

    Args:
        inputs: some dozen samples, as the network is called with; always the same.
        every: steps of the optimiser between two looks.
        logger: as for :class:`racecar.inspect.PlasticityLog`.
    """

    def __init__(self, inputs: ExampleInputs, *, every: int = 500, logger: Any = None) -> None:
        super().__init__()
        self.inputs, self.every, self.logger = inputs, check_every(every), logger
        self.plasticity: PlasticityLog | None = None
        """From the start of the first training on; it goes on in one that follows."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.plasticity is None:
            inputs = map_tensors(lambda one: one.to(args.device), self.inputs)
            self.plasticity = PlasticityLog(model, inputs, every=self.every, logger=self.logger)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.plasticity is not None
        self.plasticity.step()


_MADE = {"RacecarTrainer": (RacecarMixin, "Trainer"), "PlasticityCallback": (PlasticityEvents, "TrainerCallback")}


def __getattr__(name: str) -> Any:
    """``RacecarTrainer`` and ``PlasticityCallback``: ours with transformers' own class, made when asked for."""
    if name not in _MADE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ours, base = _MADE[name]
    theirs = getattr(need("transformers", "transformers"), base)
    mixed = type(name, (ours, theirs), {"__doc__": ours.__doc__, "__module__": __name__})
    globals()[name] = mixed
    return mixed
