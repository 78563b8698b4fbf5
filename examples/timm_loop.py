"""timm's training loop with timm's own parts: optimiser, schedule, mixup, soft targets, loss scaler, moving average.

    python examples/timm_loop.py [--epochs 3] [--device cuda]

Needs timm and torchvision. ``rr`` is called in place of the model, and the racecar loss added before the scaler sees
the sum; all else is as in timm's ``train.py``. The average is of the model itself, so its checkpoint is timm's.
"""

from __future__ import annotations

import argparse

import timm
import torch
from plain_loop import pictures
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, NativeScaler
from torch import Tensor

from racecar import Racecar


def coloured(count: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(count, 3, 48, 48): the bars of plain_loop, larger and in three equal channels, and their classes."""
    x, y = pictures(count, seed)
    return x.repeat_interleave(4, 2).repeat_interleave(4, 3).expand(-1, 3, -1, -1).to(device), y.to(device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu", type=torch.device)
    arguments = parser.parse_args()
    epochs, device = arguments.epochs, arguments.device
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=2).to(device)
    x, y = coloured(512, 0, device)

    rr = Racecar(model, x[:4], weight=0.01, fraction=0.25)
    optimiser = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.02)
    schedule, _ = create_scheduler_v2(optimiser, sched="cosine", num_epochs=epochs, updates_per_epoch=16)
    mixup, criterion = Mixup(mixup_alpha=0.1, num_classes=2), SoftTargetCrossEntropy()
    scaler, average = NativeScaler(device=device.type), ModelEmaV3(model, decay=0.9)
    for epoch in range(epochs):
        model.train()
        for step, some in enumerate(torch.randperm(len(y), device=device).split(32)):
            mixed, targets = mixup(x[some].clone(), y[some])
            with torch.autocast(device.type, torch.float16 if device.type == "cuda" else torch.bfloat16):
                output, loss = rr(mixed)
                total = criterion(output, targets) + loss
            optimiser.zero_grad()
            scaler(total, optimiser, clip_grad=1.0, parameters=model.parameters())
            average.update(model)
            schedule.step_update(epoch * 16 + step + 1)
        schedule.step(epoch + 1)
        terms = list(rr.terms.values())
        print(f"epoch {epoch}: task and racecar {total:.3f}, reverse errors {terms[0]:.3f} … {terms[-1]:.3f}")
    test_x, test_y = coloured(256, 1, device)
    with torch.no_grad():
        print(f"accuracy {(average.eval()(test_x).argmax(1) == test_y).float().mean():.3f}")


if __name__ == "__main__":
    main()
