"""A training loop written by hand, whose results the laboratory must reproduce bit for bit."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from racecar import Racecar
from racecar.orthogonality import srip
from racecar_lab.training import rng
from racecar_lab.training.variants import variant
from tests.lab.tiny import WIDTHS, Tiny

NOISE = 5 + 4 + 3
"""Number of random numbers in a step of Ort: a vector for the smaller side of every weight."""
SCHEDULE = ((0.1, 1.0), (0.25, 1e-1), (0.35, 1e-2), (0.6, 1e-4), (1.0, 0.0))
"""Schedule of OrtB, with steps at 20, 50, 70 and 120 of 200 epochs: the share of the training at which each interval
ends, and the multiplier of λ in it."""


def by_hand(name, config, seed=0, stage="A", task="A", start=None):
    """The trained model, its losses (epochs, steps, 2) and the moving average of its weights, from torch and the same
    random numbers."""
    tiny, which = Tiny(), variant(name)
    split = tiny.data(config, seed, None)[task].train
    torch.manual_seed(rng.seed_of("network", "tiny", seed))
    model = tiny.network(config)
    if start is not None:
        model.load_state_dict(start)
    weight = tiny.weight(config, name) if which.meaning else 0.0
    decay = config.weight_decay + (weight if name == "WD" else 0.0)
    if config.optimiser == "sgd":
        optimiser = torch.optim.SGD(model.parameters(), config.lr, momentum=config.momentum, weight_decay=decay)
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimiser]
        optimiser = kind(model.parameters(), config.lr, weight_decay=decay)
    rr = Racecar(model, split.x, mode=which.mode, weight=1.0, scale="relative") if which.mode else None
    batch = config.batch or len(split)
    steps, losses, average = len(split) // batch, [], []
    total, once = steps * config.epochs, config.schedule == "onecycle"
    cycle = OneCycleLR(optimiser, config.lr, total, cycle_momentum=False) if once else None
    for epoch in range(config.epochs):
        order = rng.order(len(split), config.batch, seed, stage, epoch)
        noise = rng.noise(NOISE, steps, seed, stage, epoch)
        for i in range(steps):
            if config.schedule == "cosine":
                done = (epoch * steps + i) / (steps * config.epochs)
                for group in optimiser.param_groups:
                    group["lr"] = config.lr * (1 + math.cos(math.pi * done)) / 2
            x, y = split.x[order[i]], split.y[order[i]]
            assert x.shape == (batch, WIDTHS[0])
            output, extra = rr(x) if rr is not None else (model(x), torch.zeros(()))
            if rr is not None and (epoch * steps + i) % config.every:
                extra = torch.zeros(())
            elif rr is not None:
                extra = config.every * extra
            factor = 1.0
            if name in ("Ort", "OrtB"):
                extra = srip(model, draw=_deal(noise[i]))
            if name == "OrtB":
                done = (epoch * steps + i) / total
                factor = next(factor for end, factor in SCHEDULE if done < end)
            loss = F.cross_entropy(output, y)
            optimiser.zero_grad()
            (loss + weight * factor * extra).backward()
            if config.clip:
                nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimiser.step()
            if cycle is not None:
                cycle.step()
            losses.append((loss.item(), extra.item()))
            now = [p.detach().double() for p in model.parameters()]
            pairs = zip(average or now, now, strict=True)
            average = [config.ema * old + (1 - config.ema) * new for old, new in pairs]
    return model, torch.tensor(losses).view(config.epochs, steps, 2), average


def _deal(numbers):
    remaining = numbers.tolist()

    def draw(*shape, **like):
        return torch.tensor([remaining.pop(0) for _ in range(math.prod(shape))], **like).reshape(shape)

    return draw
