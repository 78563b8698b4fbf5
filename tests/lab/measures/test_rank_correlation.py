"""Rank correlations against scipy's, and matches by hand."""

import pytest
import torch
from scipy.stats import spearmanr

from racecar_lab.measures.rank_correlation import matched, rank_correlations


def test_any_growing_or_falling_function_has_one():
    x = torch.linspace(-1, 1, 9).unsqueeze(1)
    found = rank_correlations(x, torch.cat((x.exp(), -(x**3), torch.ones_like(x)), 1))
    torch.testing.assert_close(found, torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64))


def test_as_scipy_with_equal_values():
    x = torch.randint(0, 4, (30, 2), generator=torch.Generator().manual_seed(0)).float()
    assert float(rank_correlations(x[:, :1], x[:, 1:])) == pytest.approx(abs(spearmanr(x[:, 0], x[:, 1]).statistic))


def test_two_codes_cannot_have_the_same_attribute():
    """Both are nearest to the first attribute; together they are best the other way round."""
    assert matched(torch.tensor([[0.9, 0.8], [0.7, 0.1]])) == [1, 0]
    assert matched(torch.tensor([[0.9, 0.1], [0.8, 0.3]])) == [0, 1]
