"""Agreement of labellings, worked out by hand."""

import math

import pytest
import torch

from racecar_lab.measures.agreement import best_match_accuracy, normalised_information


def test_renamed_classes_agree():
    first = torch.tensor([0, 0, 1, 1, 2, 2])
    second = torch.tensor([2, 2, 0, 0, 1, 1])
    assert best_match_accuracy(first, second, 3) == 1
    assert normalised_information(first, second, 3) == pytest.approx(1)


def test_the_match_is_one_to_one():
    """Class 0 would take both 0 and 1 of the other; one of them has to go elsewhere."""
    first, second = torch.tensor([0, 0, 0, 0, 0]), torch.tensor([0, 0, 0, 1, 1])
    assert best_match_accuracy(first, second, 2) == pytest.approx(3 / 5)
    assert normalised_information(first, second, 2) == 0


def test_the_best_match_is_not_the_greedy_one():
    """Greedy takes the 4 and then has 0 in the other corner; the best has 3 + 3."""
    pairs = {(0, 0): 4, (0, 1): 3, (1, 0): 3, (1, 1): 0}
    first, second = (torch.tensor([pair[i] for pair, n in pairs.items() for _ in range(n)]) for i in (0, 1))
    assert best_match_accuracy(first, second, 2) == pytest.approx(6 / 10)


def test_information_by_hand():
    """Halves of four: the first tells one of two bits of the second, entropies log 2 and log 4."""
    first, second = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 3])
    wanted = math.log(2) / ((math.log(2) + math.log(4)) / 2)
    assert normalised_information(first, second, 4) == pytest.approx(wanted)
    assert normalised_information(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]), 2) == pytest.approx(0)
    assert normalised_information(torch.tensor([3, 3]), torch.tensor([1, 1]), 4) == 0
