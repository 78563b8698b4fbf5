"""SSIM and PSNR against their definitions, written out in NumPy loops."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racecar.inspect.ssim import psnr, ssim, ssim_pairwise


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_loops(a, b, data_range=1.0, window=11, sigma=1.5):
    """Wang et al. 2004, eq. 13 to 17, one window after the other, in centred moments."""
    half = window // 2
    weight = np.array(
        [
            [math.exp(-((i - half) ** 2 + (j - half) ** 2) / (2 * sigma**2)) for j in range(window)]
            for i in range(window)
        ]
    )
    weight /= weight.sum()
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    values = []
    for x, y in zip(a, b, strict=True):
        for i in range(x.shape[0] - window + 1):
            for j in range(x.shape[1] - window + 1):
                p, q = x[i : i + window, j : j + window], y[i : i + window, j : j + window]
                mean_p, mean_q = (weight * p).sum(), (weight * q).sum()
                var_p, var_q = (weight * (p - mean_p) ** 2).sum(), (weight * (q - mean_q) ** 2).sum()
                covariance = (weight * (p - mean_p) * (q - mean_q)).sum()
                values.append(
                    (2 * mean_p * mean_q + c1)
                    * (2 * covariance + c2)
                    / ((mean_p**2 + mean_q**2 + c1) * (var_p + var_q + c2))
                )
    return np.mean(values)


@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([1, 3, 5, 11]),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from([0.7, 1.5]),
    st.sampled_from([1.0, 255.0]),
)
def test_equals_the_definition(n, channels, window, more_rows, more_columns, sigma, data_range):
    a, b = pictures(2, n, channels, window + more_rows, window + more_columns) * data_range
    found = ssim(a, b, data_range, window, sigma)
    truth = [by_loops(x, y, data_range, window, sigma) for x, y in zip(a.numpy(), b.numpy(), strict=True)]
    assert found.shape == (n,)
    np.testing.assert_allclose(found, truth, rtol=1e-10, atol=1e-12)


def test_defaults_are_those_of_the_paper():
    a, b = pictures(2, 1, 1, 14, 13)
    np.testing.assert_allclose(ssim(a, b), [by_loops(a[0].numpy(), b[0].numpy())], rtol=1e-10)


def test_float32_is_near():
    a, b = pictures(2, 3, 3, 20, 20)
    found = ssim(a.float(), b.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), ssim(a, b), rtol=0, atol=1e-5)
    assert ssim(a.half(), b.half()).dtype == torch.float32


def test_gradient():
    a, b = pictures(2, 1, 2, 6, 5)
    a.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: ssim(a, b, window=3), (a, b))


def test_pairwise_equals_one_by_one():
    a, b = pictures(300, 1, 6, 5), pictures(4, 1, 6, 5, seed=1)  # more than one block
    found = ssim_pairwise(a, b, window=5)
    assert found.shape == (300, 4)
    for j, one in enumerate(b):
        torch.testing.assert_close(found[:, j], ssim(a, one.expand_as(a), window=5))


def test_psnr():
    a = torch.zeros(4, 1, 2, 2)
    b = torch.stack([torch.full((1, 2, 2), x) for x in (1.0, 0.1, 0.01, 0.0)])
    torch.testing.assert_close(psnr(a, b), torch.tensor([0, 20, 40, torch.inf]))
    torch.testing.assert_close(psnr(255 * a, 255 * b, data_range=255), psnr(a, b))
    x, y = pictures(2, 3, 5)
    truth = [10 * math.log10(4 / np.mean((p - q) ** 2)) for p, q in zip(x.numpy(), y.numpy(), strict=True)]
    np.testing.assert_allclose(psnr(x, y, data_range=2), truth)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"b": torch.rand(2, 1, 12, 13)}, "same shape"),
        ({"a": torch.rand(12, 12), "b": torch.rand(12, 12)}, "(N, C, H, W)"),
        ({"window": 13}, "does not fit pictures of 12 × 12"),
        ({"window": 4}, "odd"),
        ({"window": -1}, "odd"),
        ({"sigma": 0.0}, "sigma"),
        ({"data_range": 0.0}, "data_range"),
    ],
)
def test_bad_input(change, message):
    arguments = {"a": torch.rand(2, 1, 12, 12), "b": torch.rand(2, 1, 12, 12)} | change
    for f in (ssim, ssim_pairwise):
        with pytest.raises(ValueError, match=re.escape(message)):
            f(**arguments)


def test_bad_input_of_psnr():
    with pytest.raises(ValueError, match="same shape"):
        psnr(torch.rand(2, 3), torch.rand(3, 3))
    with pytest.raises(ValueError, match="batches"):
        psnr(torch.rand(3), torch.rand(3))
    with pytest.raises(ValueError, match="data_range"):
        psnr(torch.rand(2, 3), torch.rand(2, 3), data_range=-1)
