"""Racecar training in Lightning: a callback, and nothing else changes."""

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
"""The library under its older name, for those who train with that."""
pl = _OLDER or need("lightning.pytorch", "lightning")


class RacecarCallback(pl.Callback):  # type: ignore[name-defined]
    """Add the racecar loss to what any LightningModule trains.

        trainer = Trainer(callbacks=[RacecarCallback(weight=0.01, until=20)])

    The loss that ``training_step`` returns has the racecar loss added; with manual optimisation, the one that
    ``manual_backward`` is given next. Validation and prediction are left alone, and checkpoints hold what they held.

    Args:
        network: name of the network in the LightningModule that runs backwards, such as "model" or "model.backbone".
            Without it the one part that has weights, or, where there are several, the LightningModule itself.
        until: epoch from which on the loss is left out, for a second phase of training.
        every: the reverse pass in every k-th step alone, with k times the weight.
        log: log the loss and every term, as "racecar/loss" and "racecar/LAYER".
        pictures: for networks that are called with pictures: log some of them every so many steps, and what the reverse
            pass makes of them from every depth; 0: never.
        settings: as ``Racecar`` takes them: weight, mode, fraction, …
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
        """What runs backwards, from the first training step on: its plan, terms, ``reconstruct``."""
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
        """After an error or an interrupt Lightning calls no ``teardown``."""
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
        """Of the calls since the last one, logged."""
        assert self.attached is not None
        loss = self.attached.loss()
        if self.log and self.attached.on and self.attached.rr is not None:
            terms = {f"racecar/{name or 'network'}": term for name, term in self.attached.rr.terms.items()}
            pl_module.log_dict({"racecar/loss": loss.detach(), **terms})
        return loss

    def _added(self, pl_module: Any, result: Any) -> Any:
        loss = self._loss(pl_module)
        if result is None:  # the step is skipped
            return None
        if isinstance(result, Mapping):
            return {**result, "loss": result["loss"] + loss}
        return result + loss

    def _check(self, pl_module: Any) -> None:
        assert self.attached is not None
        if self.attached.on and not self.attached.calls:
            named = ", ".join(repr(name) for name, _ in _parts(pl_module))
            what = self.network or type(self.attached.network).__name__
            raise ValueError(
                f"training_step did not call {what}, so that there is nothing to run backwards: name the network that "
                f"it calls, RacecarCallback(network=…), one of {named}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self._calls if self.attached is None else self.attached.calls}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._calls = int(state_dict["calls"])
        if self.attached is not None:
            self.attached.calls = self._calls


def _network(pl_module: Any, name: str) -> nn.Module:
    if name:
        try:
            found: nn.Module = pl_module.get_submodule(name)
        except AttributeError as error:
            known = ", ".join(repr(one) for one, _ in _parts(pl_module))
            raise ValueError(f"{type(pl_module).__name__} has no part {name!r}, but {known}") from error
        return found
    parts = _parts(pl_module)
    whole: nn.Module = pl_module
    return parts[0][1] if len(parts) == 1 else whole


def _parts(pl_module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Direct parts that have weights to train."""

    def trains(part: nn.Module) -> bool:
        return any(weight.requires_grad and weight.dim() > 1 for weight in part.parameters())

    return [(name, part) for name, part in pl_module.named_children() if trains(part)]


class PlasticityCallback(pl.Callback):  # type: ignore[name-defined]
    """Watch whether what Lightning trains is losing its plasticity, with racecar's loss or without.

        watch = PlasticityCallback(x, every=500)
        Trainer(callbacks=[watch]).fit(module, data)
        print(watch.plasticity)

    "plasticity/dead/LAYER", "plasticity/rank/LAYER" and so on go to every logger. ``plasticity`` is the
    ``PlasticityLog``, which goes on in a fit that follows.

    Args:
        inputs: some dozen samples, as the network is called with; always the same.
        network: name of the network in the LightningModule, as for :class:`RacecarCallback`.
        every: training steps (calls of ``training_step``) between two looks.
    """

    def __init__(self, inputs: Any, network: str = "", *, every: int = 500) -> None:
        self.inputs, self.network, self.every = inputs, network, check_every(every)
        self.plasticity: PlasticityLog | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The start, before the first step."""
        if self.plasticity is None:
            inputs = trainer.strategy.batch_to_device(self.inputs)
            self.plasticity = PlasticityLog(_network(pl_module, self.network), inputs, every=self.every)
            self._send(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.plasticity is not None
        known = len(self.plasticity.history)
        self.plasticity.step()
        if len(self.plasticity.history) > known:
            self._send(trainer)

    def _send(self, trainer: Any) -> None:
        assert self.plasticity is not None
        _, found = self.plasticity.history[-1]
        for logger in trainer.loggers:
            logger.log_metrics(found.scalars(), trainer.global_step)
