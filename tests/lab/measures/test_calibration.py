"""Likelihood and calibration, by hand and on made-up nets with known errors."""

import math

import pytest
import torch
from torch import nn

from racecar_lab.experiment import Split
from racecar_lab.measures.calibration import calibration, expected_error


def test_by_hand():
    """Two bins: confidences 0.6, 0.6 (one right) and 0.9, 1 (both right): (|1 − 1.2| + |2 − 1.9|) / 4."""
    shares = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9], [0.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 1])
    assert expected_error(shares, y, bins=10) == pytest.approx((0.2 + 0.1 + 0.0) / 4)


@pytest.mark.parametrize("claimed", [0.7, 0.95])
def test_a_known_error(claimed):
    """A net that always says 0.7 or 0.95 and is right in 70 of 100 cases."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(20000, generator=generator) > 0.7).long()
    shares = torch.tensor([claimed, 1 - claimed], dtype=torch.float64).expand(20000, 2)
    assert expected_error(shares, y) == pytest.approx(abs(claimed - 0.7), abs=0.01)


def test_of_a_net():
    model = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(model.weight)
    result = calibration(model, Split(torch.rand(8, 2), torch.tensor([0, 1] * 4)), batch=3)
    assert result == pytest.approx({"nll": math.log(2), "ece": 0.0})
