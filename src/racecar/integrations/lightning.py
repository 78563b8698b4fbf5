"""Racecar training in Lightning: callbacks that need no change of the LightningModule."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from racecar.every import check_every
from racecar.inspect import PlasticityLog, invertibility
from racecar.inspect.invertibility import is_pictures
from racecar.integrations.attached import Attached
from racecar.integrations.pictures import grid, log_picture
from racecar.racecar import Racecar
from racecar.support.extras import need

_OLDER = None if "lightning" in sys.modules else sys.modules.get("pytorch_lightning")
"""Lightning under its older name, if the user has imported that one."""
pl = _OLDER or need("lightning.pytorch", "lightning")


class RacecarCallback(pl.Callback):  # type: ignore[name-defined]
    """A Lightning callback that adds the racecar loss to the training of any LightningModule.

        trainer = Trainer(callbacks=[RacecarCallback(weight=0.01, until=20)])

    It is added to the loss that ``training_step`` returns or, with manual optimisation, to the next one that
    ``manual_backward`` gets. Validation, prediction and the contents of checkpoints do not change.

    Args:
        network: name of the network in the LightningModule to run backwards, such as "model" or "model.backbone". "":
            the one child module with weights or, if there are several, the LightningModule itself.
        until: epoch from which on the racecar loss is left out, for a second phase of training; None: never.
        every: run the reverse pass in every k-th step only, with k times the weight.
        log: whether to log the loss and every term, as "racecar/loss" and "racecar/LAYER".
        pictures: steps between two logged images of inputs and their reconstructions from every depth, for networks
            whose inputs are pictures; 0: none.
        settings: keyword arguments of ``Racecar``: weight, mode, fraction, …
    """

    def __init__(
        self,
        network: str = "",
        *,
        until: int | None = None,
        every: int = 1,
        log: bool = True,
        pictures: int = 0,
        **settings: Any,
    ) -> None:
        self.network, self.until, self.every, self.settings = network, until, every, settings
        self.log, self.pictures = log, pictures
        self.attached: Attached | None = None
        self._calls = 0

    @property
    def rr(self) -> Racecar | None:
        """The Racecar that runs the reverse pass, with plan, terms and ``reconstruct``; None before the first step."""
        return None if self.attached is None else self.attached.rr

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        self.attached = Attached(_network(pl_module, self.network), every=self.every, **self.settings)
        self.attached.calls = self._calls
        step, backward = pl_module.training_step, pl_module.manual_backward

        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            self._check(pl_module)
            return self._added(pl_module, result) if pl_module.automatic_optimization else result

        @functools.wraps(backward)
        def manual_backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            backward(loss + self._loss(pl_module), *args, **kwargs)

        pl_module.training_step, pl_module.manual_backward = training_step, manual_backward

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._detach(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detach after an error or an interrupt, when Lightning calls no ``teardown``."""
        self._detach(pl_module)

    def _detach(self, pl_module: Any) -> None:
        if self.attached is not None and self.attached.active:
            self._calls = self.attached.calls
            self.attached.detach()
            pl_module.__dict__.pop("training_step", None)
            pl_module.__dict__.pop("manual_backward", None)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        assert self.attached is not None
        self.attached.on = self.until is None or trainer.current_epoch < self.until

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.attached is not None
        seen, due = self.attached.seen, self.pictures and trainer.global_step % self.pictures == 0
        if due and trainer.is_global_zero and self.rr is not None and seen is not None and is_pictures(seen):
            log_picture(trainer.loggers, grid(invertibility(self.rr, seen)), trainer.global_step)

    def _loss(self, pl_module: Any) -> Tensor:
        """The racecar loss of the network's calls since the last one, a scalar; also logs it."""
        assert self.attached is not None
        loss = self.attached.loss()
        if self.log and self.attached.on and self.attached.rr is not None:
            terms = {f"racecar/{name or 'network'}": term for name, term in self.attached.rr.terms.items()}
            pl_module.log_dict({"racecar/loss": loss.detach(), **terms})
        return loss

    def _added(self, pl_module: Any, result: Any) -> Any:
        """``result``, the return value of ``training_step``, with the racecar loss added to its loss."""
        loss = self._loss(pl_module)
        if result is None:  # the step is skipped
            return None
        if isinstance(result, Mapping):
            return {**result, "loss": result["loss"] + loss}
        return result + loss

    def _check(self, pl_module: Any) -> None:
        """Raise if the first ``training_step`` did not call the network."""
        assert self.attached is not None
        if self.attached.on and not self.attached.calls:
            names = ", ".join(repr(name) for name, _ in _parts(pl_module))
            network = self.network or type(self.attached.network).__name__
            raise ValueError(
                f"training_step did not call {network}, so that there is nothing to run backwards: name the network "
                f"that it calls, RacecarCallback(network=…), one of {names}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self._calls if self.attached is None else self.attached.calls}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._calls = int(state_dict["calls"])
        if self.attached is not None:
            self.attached.calls = self._calls


def _network(pl_module: Any, name: str) -> nn.Module:
    """The network to run backwards: by name, or the one child module with weights, or the whole LightningModule."""
    if name:
        try:
            network: nn.Module = pl_module.get_submodule(name)
        except AttributeError as error:
            known = ", ".join(repr(part) for part, _ in _parts(pl_module))
            raise ValueError(f"{type(pl_module).__name__} has no part {name!r}, but {known}") from error
        return network
    parts = _parts(pl_module)
    whole: nn.Module = pl_module
    return parts[0][1] if len(parts) == 1 else whole


def _parts(pl_module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The child modules, with their names, that have weights to train."""

    def trains(part: nn.Module) -> bool:
        return any(weight.requires_grad and weight.dim() > 1 for weight in part.parameters())

    return [(name, part) for name, part in pl_module.named_children() if trains(part)]


class PlasticityCallback(pl.Callback):  # type: ignore[name-defined]
    """A Lightning callback that measures the network's plasticity during training, with the racecar loss or without.

        watch = PlasticityCallback(x, every=500)
        Trainer(callbacks=[watch]).fit(module, data)
        print(watch.plasticity)

    It sends "plasticity/dead/LAYER", "plasticity/rank/LAYER" and so on to every logger. Its ``plasticity`` is a
    ``PlasticityLog``, None before training, which a later ``fit`` continues.

    Args:
        inputs: a few dozen samples to measure on, in the form in which the network is called.
        network: name of the network in the LightningModule, as for :class:`RacecarCallback`.
        every: training steps (calls of ``training_step``) between two measurements.
    """

    def __init__(self, inputs: Any, network: str = "", *, every: int = 500) -> None:
        self.inputs, self.network, self.every = inputs, network, check_every(every)
        self.plasticity: PlasticityLog | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the first measurement, before the first step."""
        if self.plasticity is None:
            inputs = trainer.strategy.batch_to_device(self.inputs)
            self.plasticity = PlasticityLog(_network(pl_module, self.network), inputs, every=self.every)
            self._send(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.plasticity is not None
        before = len(self.plasticity.history)
        self.plasticity.step()
        if len(self.plasticity.history) > before:
            self._send(trainer)

    def _send(self, trainer: Any) -> None:
        """Send the latest measurement to every logger."""
        assert self.plasticity is not None
        _, latest = self.plasticity.history[-1]
        for logger in trainer.loggers:
            logger.log_metrics(latest.scalars(), trainer.global_step)
