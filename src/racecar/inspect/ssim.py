"""SSIM and PSNR: how similar two pictures are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.support.precision import wide


def ssim(a: Tensor, b: Tensor, data_range: float = 1.0, window: int = 11, sigma: float = 1.5) -> Tensor:
    """Structural similarity of each a[i] to b[i] (SSIM, Wang et al. 2004), 1 for equal pictures; differentiable.

    Means, variances and covariance are taken in a Gaussian window at every position where it lies inside the picture;
    the result is averaged over positions and channels.

    Args:
        a, b: pictures of one shape, (N, C, H, W).
        data_range: the difference between the largest and the smallest value that a pixel may take.
        window: side of the Gaussian window, odd and no larger than the picture.
        sigma: standard deviation of the Gaussian, in pixels.

    Returns:
        (N,), in float32, or float64 for pictures in float64.
    """
    a, b = _pair(a, b)
    _check(a, data_range, window, sigma)
    mean_a, square_a = _moments(a, window, sigma)
    mean_b, square_b = _moments(b, window, sigma)
    return _index(mean_a, mean_b, square_a, square_b, _blur(a * b, window, sigma), data_range)


def ssim_pairwise(a: Tensor, b: Tensor, data_range: float = 1.0, window: int = 11, sigma: float = 1.5) -> Tensor:
    """SSIM of every picture a[i] with every b[j].

    Args:
        a: (Na, C, H, W).
        b: (Nb, C, H, W).
        data_range, window, sigma: as for ``ssim``.

    Returns:
        (Na, Nb).
    """
    a, b = _pair(a, b, first=1)
    _check(a, data_range, window, sigma)
    moments_b = list(zip(b, *_moments(b, window, sigma), strict=True))
    rows = []
    for part in a.split(256):  # small enough to stay in the cache
        mean, square = _moments(part, window, sigma)
        columns = [
            _index(mean, mean_b, square, square_b, _blur(part * picture_b, window, sigma), data_range)
            for picture_b, mean_b, square_b in moments_b
        ]
        rows.append(torch.stack(columns, 1))
    return torch.cat(rows)


def psnr(a: Tensor, b: Tensor, data_range: float = 1.0) -> Tensor:
    """Peak signal-to-noise ratio of each a[i] to b[i] in dB, 10 log₁₀(data_range² / mean square error); infinite for
    equal samples.

    Args:
        a, b: tensors of one shape, (N, …).
        data_range: the difference between the largest and the smallest value that an element may take.

    Returns:
        (N,), in float32, or float64 for tensors in float64.
    """
    a, b = _pair(a, b)
    if a.dim() < 2:
        raise ValueError(f"psnr compares batches (N, …), not tensors of shape {tuple(a.shape)}")
    _check_range(data_range)
    return 10 * torch.log10(data_range**2 / (a - b).square().flatten(1).mean(1))


def _index(mean_a: Tensor, mean_b: Tensor, aa: Tensor, bb: Tensor, ab: Tensor, data_range: float) -> Tensor:
    """SSIM (N,) from the means in every window of a, b, a², b² and ab, each (N, C, H', W')."""
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    product, squares = mean_a * mean_b, mean_a.square() + mean_b.square()
    luminance = (2 * product + c1) / (squares + c1)
    structure = (2 * (ab - product) + c2) / (aa + bb - squares + c2)
    return (luminance * structure).mean((-3, -2, -1))


def _moments(x: Tensor, window: int, sigma: float) -> tuple[Tensor, Tensor]:
    """Means of x and of x² in every window, each (N, C, H', W')."""
    return _blur(x, window, sigma), _blur(x.square(), window, sigma)


def _blur(x: Tensor, window: int, sigma: float) -> Tensor:
    """Gaussian means of x (N, C, H, W) over all windows inside the picture, (N, C, H − window + 1, W − window + 1).

    Computed as two products with band matrices: on small pictures many times faster than a convolution, never slower.
    """
    offsets = torch.arange(window, dtype=x.dtype, device=x.device) - window // 2
    gauss = torch.exp(-offsets.square() / (2 * sigma**2))
    gauss = gauss / gauss.sum()
    rows, columns = (
        torch.stack([F.pad(gauss, (i, side - window - i)) for i in range(side - window + 1)]) for side in x.shape[-2:]
    )
    return rows @ x @ columns.T


def _pair(a: Tensor, b: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
    """Both tensors in the same dtype, float32 or float64; raises if their shapes differ from dimension ``first`` on."""
    if a.shape[first:] != b.shape[first:]:
        raise ValueError(f"a and b must have the same shape, not {tuple(a.shape)} and {tuple(b.shape)}")
    dtype = torch.promote_types(wide(a), wide(b))
    return a.to(dtype), b.to(dtype)


def _check(x: Tensor, data_range: float, window: int, sigma: float) -> None:
    if x.dim() != 4:
        raise ValueError(f"SSIM compares pictures (N, C, H, W), not tensors of shape {tuple(x.shape)}")
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window must be an odd number of pixels, not {window}")
    height, width = x.shape[-2:]
    if window > min(height, width):
        raise ValueError(f"a window of {window} pixels does not fit pictures of {height} × {width}: give a smaller one")
    if not sigma > 0:
        raise ValueError(f"sigma must be above 0, not {sigma}")
    _check_range(data_range)


def _check_range(data_range: float) -> None:
    if not data_range > 0:
        raise ValueError(f"data_range must be above 0, not {data_range}")
