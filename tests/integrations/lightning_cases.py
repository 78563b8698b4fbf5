"""Modules, callbacks and loggers for the tests of Lightning. Only the tests import this file, when they run: Lightning
takes two seconds to import, and all of its tests run in one of pytest's workers."""

import lightning.pytorch as pl
import torch
from torch import nn

from racecar.integrations.lightning import PlasticityCallback, RacecarCallback

__all__ = ["Fails", "Pictures", "Plain", "PlasticityCallback", "RacecarCallback", "Scalars", "pl"]


class Plain(pl.LightningModule):
    """A usual one: a network and a loss. ``calls`` says what training_step calls."""

    def __init__(self, calls="model", manual=False, result="tensor"):
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
        self.calls, self.result, self.automatic_optimization = calls, result, not manual
        self.outputs = []

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        output = self(x) if self.calls == "self" else self.model(x)
        loss = nn.functional.cross_entropy(output, y)
        if not self.automatic_optimization:
            optimiser = self.optimizers()
            optimiser.zero_grad()
            self.manual_backward(loss)
            optimiser.step()
        return {"loss": loss, "x": x} if self.result == "dict" else loss

    def validation_step(self, batch, batch_idx):
        self.outputs.append(self.model(batch[0]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Fails(pl.Callback):
    """Raises in one of its hooks."""

    def __init__(self, hook, error):
        def fail(*args, **kwargs):
            raise error("on purpose")

        setattr(self, hook, fail)


class Pictures(pl.loggers.logger.DummyLogger):
    def __init__(self):
        super().__init__()
        self.kept = []

    def log_image(self, key, images, step):
        self.kept.append((key, step, images))


class Scalars(pl.loggers.logger.DummyLogger):
    def __init__(self):
        super().__init__()
        self.kept = []

    def log_metrics(self, metrics, step):
        self.kept.append((step, {name for name in metrics if name.startswith("plasticity/")}))
