"""The agreement of two labellings of the same samples whose classes have no common names: best-match accuracy and
normalised mutual information."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.support.extras import need


def counts(first: Tensor, second: Tensor, classes: int) -> Tensor:
    """For each pair of classes, number of samples that the two labellings (N,) put into them: (classes, classes)."""
    return torch.bincount(first * classes + second, minlength=classes**2).view(classes, classes)


def best_match_accuracy(first: Tensor, second: Tensor, classes: int) -> float:
    """Share of the samples (N,) whose labels agree, after the classes of the one labelling were matched one-to-one with
    those of the other so that as many as possible agree."""
    pairs = counts(first, second, classes).cpu()
    rows, columns = need("scipy.optimize", "lab").linear_sum_assignment(pairs.numpy(), maximize=True)
    return float(pairs[rows, columns].sum()) / max(1, len(first))


def normalised_information(first: Tensor, second: Tensor, classes: int) -> float:
    """Mutual information of two labellings over the mean of their entropies: 1 if each is a renaming of the other; 0 if
    they are independent, or if both have a single class."""
    joint = counts(first, second, classes).double() / max(1, len(first))
    rows, columns, both = (entropy(p) for p in (joint.sum(1), joint.sum(0), joint))
    return 0.0 if rows + columns == 0 else max(0.0, 2 * (rows + columns - both) / (rows + columns))


def entropy(p: Tensor) -> float:
    """Entropy of probabilities, in nats."""
    return float(torch.special.entr(p).sum())
