"""Linear probes: classifiers on a trained net's features, for a new task with few labels."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from racecar_lab.measures.logistic import logistic
from racecar_lab.task import Split

BATCH = {"cpu": 256, "cuda": 4096}
"""Number of samples whose features are computed at once, by device."""


def body(model: nn.Module) -> nn.Module:
    """A copy of a net without its classifier; its output is the features (N, D)."""
    if not hasattr(model, "classifier"):
        raise ValueError(f"{type(model).__name__} has no part called 'classifier' to take off")
    model = copy.deepcopy(model)
    model.classifier = nn.Identity()
    return model


@torch.no_grad()
def features(model: nn.Module, x: Tensor) -> Tensor:
    """Features (N, D) of samples x (N, …), from a net without classifier, in evaluation mode."""
    model.eval()
    return torch.cat([model(part) for part in x.split(BATCH.get(x.device.type, 256))])


def choose(y: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Indices (classes · per_class,) of ``per_class`` random samples of each class, without replacement; y (N,) are the
    labels."""
    y = y.cpu()
    order = torch.randperm(len(y), generator=generator)
    chosen = []
    for label in y.unique().tolist():
        members = order[y[order] == label]
        if len(members) < per_class:
            raise ValueError(
                f"class {label} has {len(members)} samples and not the {per_class} labels that were asked for"
            )
        chosen.append(members[:per_class])
    return torch.cat(chosen)


def probe_all(trains: Sequence[Split], tests: Sequence[Split], classes: int, l2: float) -> list[Tensor]:
    """Test accuracies (B,) of multinomial logistic regression, for several nets with B sets of labelled features each.

    The labelled features are centred and divided by one number, after which their mean squared length is 1, so that L2
    means the same for every net. The accuracy is NaN if features are not finite.

    Args:
        trains: for each net features (B, N, D) and labels (B, N), of equal shapes.
        tests: for each net features (M, D) and labels (M,), for all its sets.
        classes: number of classes K.
        l2: factor of the L2 penalty, greater than 0.
    """
    x, mean, scale = standard(torch.cat([train.x for train in trains]))
    finite = torch.cat([_finite(*both) for both in zip(trains, tests, strict=True)])
    y = torch.cat([train.y for train in trains])
    weight, bias = logistic(torch.where(finite[:, None, None], x, 0), y, classes, l2)
    weight = weight.mT / scale
    accuracies, sets = [], [len(train.x) for train in trains]
    parts = (tensor.split(sets) for tensor in (weight, bias[:, None] - mean @ weight, finite))
    for test, w, b, is_finite in zip(tests, *parts, strict=True):
        right = ((test.x.double() @ w + b).argmax(2) == test.y).double().mean(1)
        accuracies.append(torch.where(is_finite, right, torch.nan))
    return accuracies


def standard(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features (B, N, D) centred and scaled to a mean squared length of 1 in every set, in double precision, with their
    means (B, 1, D) and the divisors (B, 1, 1)."""
    mean = x.double().mean(1, keepdim=True)
    x = x.double() - mean
    scale = x.square().sum(2).mean(1).sqrt()[:, None, None]
    scale = torch.where(scale == 0, 1, scale)
    return x / scale, mean, scale


@torch.no_grad()
def settle(model: nn.Module, x: Tensor) -> nn.Module:
    """Compute the running statistics of a net's batch norms from the samples x (N, …), for nets that were not trained.
    Returns the net, in evaluation mode."""
    update_bn(x.split(BATCH["cpu"]), model)
    return model.eval()


@torch.no_grad()
def ridge(train: Split, test: Split, classes: int, l2: float) -> Tensor:
    """Test accuracies (B,) of ridge regression on one-hot labels, for B sets of labelled features at once.

    It is a probe for thousands of nets: one linear system instead of hundreds of steps. It minimises the mean squared
    error + l2 · Σ w² on features centred and scaled as in ``probe_all``; the bias, the mean of the labels, is not
    penalised. The system is the dual one, of the size of the number of samples. NaN if features are not finite.

    Args:
        train: features (B, N, D), labels (B, N).
        test: features (M, D), labels (M,), for all sets.
        classes: number of classes K.
        l2: factor of the L2 penalty, greater than 0.
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
    """For each set of labelled features, True if all of them and all test features are finite, (B,)."""
    return train.x.isfinite().flatten(1).all(1) & test.x.isfinite().all()
