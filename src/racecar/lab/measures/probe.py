"""What a trained net's features are worth for a new task with few labels: a linear probe, and fine-tuning."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.lab.experiment import Split

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


def probe(train: Split, test: Split, classes: int, l2: float) -> float:
    """Test accuracy of multinomial logistic regression on features (N, D).

    The features are moved and scaled by two things that the labelled samples alone give, so that L2 asks the same of
    every net: their mean, and one number, after which their mean squared length is 1. NaN where they are not finite.
    """
    mean = train.x.double().mean(0)
    x = train.x.double() - mean
    scale = x.square().sum(1).mean().sqrt()
    if not scale.isfinite():
        return float("nan")
    scale = scale if scale > 0 else torch.ones_like(scale)
    weight, bias = logistic(x / scale, train.y, classes, l2)
    guess = (test.x.double() - mean) @ (weight / scale).t() + bias
    return float((guess.argmax(1) == test.y).double().mean())


def logistic(x: Tensor, y: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression to convergence, by L-BFGS from 0.

    Minimises the mean cross-entropy + l2/2 · (Σ w² + Σ b²), which has one minimum; the bias is in it so that this holds
    of it, too. L-BFGS goes in coordinates in which the largest curvature that there can be is 1 in every direction:
    tens of steps instead of hundreds.

    Args:
        x: features (N, D).
        y: labels (N,) in 0 … classes − 1.
        classes: their number K.
        l2: greater than 0.

    Returns:
        Weight (K, D) and bias (K,).
    """
    if not l2 > 0:
        raise ValueError(f"l2 must be greater than 0, not {l2!r}: without it there is no single solution")
    whole = torch.cat((x, x.new_ones(len(x), 1)), 1)
    few = len(x) < whole.shape[1]
    basis, triangle = torch.linalg.qr(whole.t()) if few else (None, None)  # weights lie where samples are
    shrunk = whole if triangle is None else triangle.t()
    count = shrunk.shape[1]
    curvature = shrunk.t() @ shrunk / (2 * len(x)) + l2 * torch.eye(count, dtype=x.dtype, device=x.device)
    scale = torch.linalg.solve_triangular(
        torch.linalg.cholesky(curvature), torch.eye(count, dtype=x.dtype, device=x.device), upper=False
    )
    inputs, back, labels = (shrunk @ scale.t()).cpu(), scale.cpu(), y.cpu()  # short steps would each wait for a GPU
    w = inputs.new_zeros(classes, count, requires_grad=True)
    solver = torch.optim.LBFGS(
        [w], max_iter=2000, tolerance_grad=1e-7, tolerance_change=0.0, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(inputs @ w.t(), labels) + l2 / 2 * (w @ back).square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    found = w.detach().to(x.device) @ scale
    found = found if basis is None else found @ basis.t()
    return found[:, :-1], found[:, -1]


def tune(
    model: nn.Module, train: Split, classes: int, *, steps: int, lr: float, batch: int, generator: torch.Generator
) -> nn.Module:
    """All of a net trained on few samples: a copy of it with a classifier of zeros, Adam without schedule.

    Args:
        model: as ``body`` gives it; not changed.
        train: the labelled samples.
        steps: of Adam.
        batch: samples in one, drawn anew for each step; all, if there are fewer.
        generator: what draws them.
    """
    model = copy.deepcopy(model)
    width = features(model, train.x[:1]).shape[1]
    head = nn.Linear(width, classes).to(train.x.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.classifier = head
    model.train()
    optimiser = torch.optim.Adam(model.parameters(), lr)
    orders = torch.stack([torch.randperm(len(train), generator=generator)[:batch] for _ in range(steps)])
    for chosen in orders.to(train.x.device):
        optimiser.zero_grad()
        F.cross_entropy(model(train.x[chosen]), train.y[chosen]).backward()
        optimiser.step()
    return model.eval()


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
    mean = train.x.double().mean(1, keepdim=True)
    x = train.x.double() - mean
    scale = x.square().sum(2).mean(1).sqrt()[:, None, None]
    x = x / torch.where(scale > 0, scale, 1)
    target = F.one_hot(train.y, classes).double()
    bias = target.mean(1, keepdim=True)
    gram = x @ x.mT + l2 * x.shape[1] * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    dual, _ = torch.linalg.solve_ex(gram, target - bias)
    weight = x.mT @ dual / torch.where(scale > 0, scale, 1)
    guess = (test.x.double() - mean) @ weight + bias
    right = (guess.argmax(2) == test.y).double().mean(1)
    finite = train.x.isfinite().flatten(1).all(1) & test.x.isfinite().all()
    return torch.where(finite, right, torch.nan)
