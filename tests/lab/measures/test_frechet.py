"""Fréchet distances that are known."""

import pytest
import torch

from racecar_lab.measures.frechet import frechet_distance


def test_a_shift_is_its_square_and_a_scale_that_of_the_deviations():
    """For diagonal covariances: |μ − ν|² + Σ (σ − τ)²."""
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]) * (3 / 4) ** 0.5  # unit covariance
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(x, x + torch.tensor([3.0, 4.0])) == pytest.approx(25)
    assert frechet_distance(x, x * torch.tensor([3.0, 1.0])) == pytest.approx(4)
    assert frechet_distance(x * 0, x) == pytest.approx(2)


def test_covariances_that_do_not_commute():
    """Against the eigenvalues of S T, which are those of S^½ T S^½; and it is the same both ways."""
    draws = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = draws[0] @ torch.tensor([[1.0, 2, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.float64), draws[1]
    s, t = first.T.cov(), second.T.cov()
    roots = torch.linalg.eigvals(s @ t).real.sqrt().sum()
    wanted = (first.mean(0) - second.mean(0)).square().sum() + s.trace() + t.trace() - 2 * roots
    assert frechet_distance(first, second) == pytest.approx(float(wanted))
    assert frechet_distance(second, first) == pytest.approx(float(wanted))
