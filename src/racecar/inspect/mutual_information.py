"""Entropy and mutual information in bits: exact for codes, bounded for values under Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

BINNINGS = ("fixed", "range", "mass")
PAIRS = 2**22
"""Most pairs of samples whose distances are in memory at once."""


@dataclass(frozen=True)
class NoiseBounds:
    """Bounds on the mutual information of an activation D plus Gaussian noise with input X and label Y, in bits."""

    sigma: float
    """Standard deviation of the noise that is added to every neuron."""
    i_xd: tuple[float, float]
    """Lower and upper bound on I(X;D+noise)."""
    i_dy: tuple[float, float]
    """Lower and upper bound on I(D+noise;Y). Strict, hence often wide."""
    i_dy_kde: tuple[float, float]
    """Two kernel density estimates of I(D+noise;Y), one with each bound's kernel. The true value is usually between
    them or close by, but need not be."""


def entropy(codes: Tensor) -> float:
    """Entropy of the codes in bits, from their frequencies (the plug-in estimate).

    Args:
        codes: (N,) integers.
    """
    _, counts = _ranks(codes, "codes")
    return _mean(torch.log2(len(codes) / counts.double()), counts)


def mutual_information(codes_a: Tensor, codes_b: Tensor) -> float:
    """Mutual information I(A;B) of two codes in bits, from their frequencies (the plug-in estimate).

    Args:
        codes_a, codes_b: (N,) integers, the two codes of each sample; only equality of codes matters.
    """
    if codes_a.shape != codes_b.shape:
        raise ValueError(f"codes must be of one length, not of shape {tuple(codes_a.shape)} and {tuple(codes_b.shape)}")
    a, in_a = _ranks(codes_a, "codes_a")
    b, in_b = _ranks(codes_b, "codes_b")
    pairs, in_both = torch.unique(a * len(in_b) + b.to(a.device), return_counts=True)
    # The fraction is built of whole numbers, so that independent codes give 0 and not a rounding error.
    product = in_a[pairs // len(in_b)] * in_b.to(a.device)[pairs % len(in_b)]
    return _mean(torch.log2(in_both * len(a) / product.double()), in_both)


def row_codes(rows: Tensor) -> Tensor:
    """Give each sample an integer code: equal samples have equal codes, different samples different ones.

    Args:
        rows: (N, …) without NaN.

    Returns:
        (N,) int64, from 0 up without gaps.
    """
    return torch.unique(rows.reshape(len(rows), -1), dim=0, return_inverse=True)[1]


def bin_edges(d: Tensor, bins: int, binning: str, range: tuple[float, float] | None = None) -> Tensor:
    """The edges between bins, one set for all neurons of a layer; the outermost bins are unbounded.

    Args:
        d: (N, …) finite values.
        bins: how many bins.
        binning: "fixed" (equal widths over ``range``), "range" (equal widths from the least to the largest value of d)
            or "mass" (each bin has the same number of values of d. Equal values share a bin, as the zeros of a ReLU, so
            there may be fewer bins).
        range: (low, high) for "fixed".

    Returns:
        (at most bins − 1,) float64, ascending. A value on an edge belongs to the bin above it.
    """
    if not isinstance(bins, Integral) or bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1, not {bins!r}")
    if binning == "mass":
        values = d.flatten().sort().values
        # The last value of each bin; the edge is the first one that is larger.
        last = values[(torch.arange(1, bins, device=d.device) * len(values) // bins - 1).clamp(min=0)]
        after = torch.searchsorted(values, last, right=True)
        return values[after[after < len(values)]].double().unique()
    if binning == "fixed":
        if range is None:
            raise ValueError("binning 'fixed' needs range=(low, high)")
        check_range(range)
        low, high = range
    elif binning == "range":
        low, high = (end.item() for end in torch.aminmax(d))
    else:
        raise ValueError(f"binning must be one of {', '.join(map(repr, BINNINGS))}, not {binning!r}")
    return torch.linspace(low, high, bins + 1, dtype=torch.float64, device=d.device)[1:-1]


def bin_codes(d: Tensor, edges: Tensor) -> Tensor:
    """Give each sample an integer code: samples have equal codes if all their neurons fall into the same bins.

    Args:
        d: (N, …).
        edges: ascending, as ``bin_edges`` makes them.

    Returns:
        (N,) int64, from 0 up without gaps.
    """
    rows, radix = d.reshape(len(d), -1), len(edges) + 1
    codes = torch.zeros(len(d), dtype=torch.int64, device=d.device)
    # Bins are digits of one number. As many neurons at a time as fit an int64 beside the code so far; no hash, so no
    # two samples can be confused.
    digits = max(1, int((62 - math.log2(len(d))) / math.log2(max(2, radix))))
    for block in rows.split(digits, dim=1):
        powers = radix ** torch.arange(block.shape[1], device=d.device)
        bins = torch.bucketize(block.double().contiguous(), edges, right=True)
        values, codes = torch.unique(codes * radix ** block.shape[1] + (bins * powers).sum(1), return_inverse=True)
        if len(values) == len(d):
            break  # all codes differ: no further neuron can change that
    return codes


def noise_bounds(d: Tensor, labels: Tensor, sigma: float) -> NoiseBounds:
    """Bounds on I(X;T) and I(T;Y) for T = D + N(0, σ²) on every neuron, by pairwise distances between samples.

    T is a mixture of Gaussians, one per sample. With the Kullback-Leibler divergence ‖d_i−d_j‖²/2σ² as the distance of
    two of them its entropy is bounded from above, with the Bhattacharyya distance ‖d_i−d_j‖²/8σ² from below
    (Kolchinsky and Tracey 2017). I(T;Y) = I(X;T) − I(X;T|Y): the strict bounds subtract the upper bound of one from the
    lower bound of the other; the usual estimate subtracts bounds of the same side (Saxe et al. 2018). The network is
    taken to be deterministic, so that only the noise hides X.

    Args:
        d: (N, …) finite values.
        labels: (N,) integers.
        sigma: standard deviation of the noise, in units of d.
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"sigma must be a finite number above 0, not {sigma}")
    if len(d) != len(labels):
        raise ValueError(f"there are {len(d)} samples, but {len(labels)} labels")
    y, counts = _ranks(labels, "labels")
    # Samples of one label lie together; centred, so that the distances lose fewer digits.
    rows = d.detach().reshape(len(d), -1)[y.argsort().to(d.device)].double()
    rows = rows - rows.mean(0)
    norms = rows.square().sum(1)
    if sigma < 1e-6 * norms.max().sqrt().item():
        raise ValueError(f"sigma {sigma:g} is lost beside values of this size: take a larger one")
    # Means over samples of −log2 of the mean similarity, to all samples and to those of the same label.
    to_all, to_label = rows.new_zeros(2), rows.new_zeros(2)
    start = 0
    for count in counts.tolist():
        for chunk in torch.arange(start, start + count, device=d.device).split(max(1, PAIRS // len(rows))):
            squares = torch.addmm(norms[chunk, None] + norms, rows[chunk], rows.T, alpha=-2).clamp_(min=0)
            bhattacharyya = squares.mul_(-1 / (8 * sigma**2)).exp_()
            for i, similarity in enumerate((bhattacharyya, bhattacharyya.square().square_())):
                to_all[i] -= similarity.mean(1).log2().sum() / len(rows)
                to_label[i] -= similarity[:, start : start + count].mean(1).log2().sum() / len(rows)
        start += count
    (low, high), (label_low, label_high), h_y = to_all.tolist(), to_label.tolist(), entropy(labels)

    def clamp(a: float, b: float, most: float) -> tuple[float, float]:
        return min(max(0.0, a), most), min(max(0.0, b), most)

    return NoiseBounds(
        float(sigma),
        clamp(low, high, math.log2(len(rows))),
        clamp(low - label_high, high - label_low, h_y),
        clamp(low - label_low, high - label_high, h_y),
    )


def check_range(range: tuple[float, float]) -> None:
    """Raise unless the range is two finite numbers, the lower one first."""
    if len(range) != 2 or not -math.inf < range[0] < range[1] < math.inf:
        raise ValueError(f"range must be two finite numbers (low, high) with low < high, not {range}")


def _ranks(codes: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The codes (N,) renumbered from 0 up without gaps, and how often each occurs, (codes,)."""
    if codes.is_floating_point() or codes.is_complex():
        raise TypeError(f"{name} must be integers, not {codes.dtype}; bin_codes makes them of values")
    if codes.dim() != 1 or not len(codes):
        raise ValueError(f"{name} must be of shape (N,) with N ≥ 1, not {tuple(codes.shape)}")
    _, ranks, counts = torch.unique(codes, return_inverse=True, return_counts=True)
    return ranks, counts


def _mean(values: Tensor, counts: Tensor) -> float:
    """Mean weighted by counts, at least 0: rounding may go below."""
    return max(0.0, float((values * counts).sum() / counts.sum()))
