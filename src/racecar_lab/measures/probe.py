"""What a trained net's features are worth for a new task with few labels: linear probes."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.experiment import Split
from racecar_lab.measures.logistic import logistic

BATCH = {"cpu": 256, "cuda": 4096}
"""Pictures whose features are computed at once."""


def body(model: nn.Module) -> nn.Module:
    """A copy of a net without its classifier: what comes out are its features, flat."""
    if not hasattr(model, "classifier"):
        raise ValueError(f"{type(model).__name__} has no part called 'classifier' to take off")
    model = copy.deepcopy(model)
    model.classifier = nn.Identity()
    return model


@torch.no_grad()
def features(model: nn.Module, x: Tensor) -> Tensor:
    """x (N, …) → features (N, D) of a net without classifier, in evaluation mode."""
    model.eval()
    return torch.cat([model(part) for part in x.split(BATCH.get(x.device.type, 256))])


def choose(y: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Indices (classes · per_class,) of as many samples of each class, drawn without replacement; labels y (N,)."""
    y = y.cpu()
    order = torch.randperm(len(y), generator=generator)
    found = []
    for label in y.unique().tolist():
        some = order[y[order] == label]
        if len(some) < per_class:
            raise ValueError(
                f"class {label} has {len(some)} samples and not the {per_class} labels that were asked for"
            )
        found.append(some[:per_class])
    return torch.cat(found)


def probe(train: Split, test: Split, classes: int, l2: float) -> Tensor:
    """Test accuracies (B,) of multinomial logistic regression, for B sets of labelled features at once.

    The features are moved and scaled by two things that the labelled samples alone give, so that L2 asks the same of
    every net: their mean, and one number, after which their mean squared length is 1. NaN where they are not finite.

    Args:
        train: features (B, N, D), labels (B, N).
        test: features (M, D), labels (M,), for all sets.
        classes: their number K.
        l2: greater than 0.
    """
    (right,) = probe_all([train], [test], classes, l2)
    return right


def probe_all(trains: Sequence[Split], tests: Sequence[Split], classes: int, l2: float) -> list[Tensor]:
    """``probe`` for several nets at once; all have as many sets, samples and features."""
    x, mean, scale = standard(torch.cat([one.x for one in trains]))
    finite = torch.cat([_finite(*both) for both in zip(trains, tests, strict=True)])
    y = torch.cat([one.y for one in trains])
    weight, bias = logistic(torch.where(finite[:, None, None], x, 0), y, classes, l2)
    weight = weight.mT / scale
    found, sets = [], [len(one.x) for one in trains]
    whole = (one.split(sets) for one in (weight, bias[:, None] - mean @ weight, finite))
    for test, w, b, good in zip(tests, *whole, strict=True):
        right = ((test.x.double() @ w + b).argmax(2) == test.y).double().mean(1)
        found.append(torch.where(good, right, torch.nan))
    return found


def standard(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features (B, N, D) with mean 0 and mean squared length 1 in every set, in double precision; what was taken off,
    (B, 1, D), and what they were divided by, (B, 1, 1)."""
    mean = x.double().mean(1, keepdim=True)
    x = x.double() - mean
    scale = x.square().sum(2).mean(1).sqrt()[:, None, None]
    scale = torch.where(scale == 0, 1, scale)
    return x / scale, mean, scale


@torch.no_grad()
def settle(model: nn.Module, x: Tensor) -> nn.Module:
    """An untrained net whose batch norms have seen the samples x (N, …) once, so that they do norm; in evaluation
    mode."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [module.momentum for module in norms]
    for module in norms:
        module.momentum = None  # a plain mean over the batches
    model.train()
    for part in x.split(BATCH["cpu"]) if norms else ():
        model(part)
    for module, momentum in zip(norms, momenta, strict=True):
        module.momentum = momentum
    return model.eval()


@torch.no_grad()
def ridge(train: Split, test: Split, classes: int, l2: float) -> Tensor:
    """Test accuracies (B,) of ridge regression on one-hot labels, for B sets of labelled features at once.

    A probe for thousands of nets: one linear system instead of hundreds of steps. Minimises the mean squared error +
    l2 · Σ w² on features moved and scaled as in ``probe``, solved in the dual, whose size is the number of samples; the
    bias, the mean of the labels, is free. NaN where features are not finite.

    Args:
        train: features (B, N, D), labels (B, N).
        test: features (M, D), labels (M,), for all sets.
        classes: their number K.
        l2: greater than 0.
    """
    if not l2 > 0:
        raise ValueError(f"l2 must be greater than 0, not {l2!r}: without it there is no single solution")
    x, mean, scale = standard(train.x)
    target = F.one_hot(train.y, classes).double()
    bias = target.mean(1, keepdim=True)
    gram = x @ x.mT + l2 * x.shape[1] * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    dual, _ = torch.linalg.solve_ex(gram, target - bias)
    weight = x.mT @ dual / scale
    guess = (test.x.double() - mean) @ weight + bias
    right = (guess.argmax(2) == test.y).double().mean(1)
    return torch.where(_finite(train, test), right, torch.nan)


def _finite(train: Split, test: Split) -> Tensor:
    """(B,): whether all features of a set, and those of the test, are."""
    return train.x.isfinite().flatten(1).all(1) & test.x.isfinite().all()
