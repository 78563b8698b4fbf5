"""The clock of a training."""

import pytest
import torch

from racecar_lab.training import curves
from racecar_lab.training.curves import Curves


@pytest.fixture
def clock(monkeypatch):
    """A function that lets seconds pass."""
    now = [100.0]
    monkeypatch.setattr(curves.time, "perf_counter", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def epoch(training_curves, clock, number, seconds, steps=4):
    training_curves.start_clock()
    for _ in range(steps):
        clock(seconds)
        training_curves.add(torch.ones(2))
    training_curves.point(number)
    clock(1000.0)  # a measurement, which is no step


def test_one_time_costs_are_no_part_of_a_step(clock):
    training_curves = Curves(epochs=3)
    for number, seconds in enumerate((50.0, 0.5, 0.75)):
        epoch(training_curves, clock, number, seconds)
    assert training_curves.step_s == 0.75


def test_without_a_point_there_is_no_time():
    assert Curves(epochs=1).step_s == 0.0


def test_the_clock_goes_on_from_a_checkpoint(clock):
    """In the middle of an epoch: steps before the checkpoint count, and the time until it is loaded does not."""
    first = Curves(epochs=1)
    first.start_clock()
    clock(3.0)
    first.add(torch.ones(2))
    first.stop_clock()
    clock(1000.0)
    second = Curves(epochs=1)
    second.load(first.state(), torch.device("cpu"))
    second.start_clock()
    clock(1.0)
    second.add(torch.ones(2))
    second.point(0)
    assert second.step_s == 2.0
