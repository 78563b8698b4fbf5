"""Lightning: any LightningModule, unchanged, with a callback.

    python examples/lightning_callback.py [--epochs 3] [--out out/lightning]

Needs lightning. TensorBoard then shows the loss and every term, and pictures rebuilt from each depth:
tensorboard --logdir out/lightning
"""

from __future__ import annotations

import argparse

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from plain_loop import pictures
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from racecar.integrations.lightning import RacecarCallback


class Classifier(pl.LightningModule):
    """As you have it already: it knows nothing of racecar."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2),
        )  # fmt: skip

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.model(x), y)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        x, y = batch
        self.log("accuracy", (self.model(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 3e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="out/lightning")
    given = parser.parse_args()
    pl.seed_everything(0)
    train, test = (DataLoader(TensorDataset(*pictures(256, seed)), 32) for seed in (0, 1))
    callback = RacecarCallback(weight=0.1, fraction=0.25, until=given.epochs - 1, pictures=8)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=given.epochs, callbacks=[callback], logger=TensorBoardLogger(given.out),
        log_every_n_steps=4, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Classifier(), train, test)
    print(callback.rr.plan if callback.rr else "")
    print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
