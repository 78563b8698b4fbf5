"""The defaults are what the rule chose from the published map, and one place has them."""

import inspect
from pathlib import Path

import pytest

from benchmarks import records
from benchmarks.tables import loss
from racecar import Racecar
from racecar.functional import reverse_loss
from racecar.reverse.settings import Settings

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("made", [Racecar.__init__, reverse_loss])
def test_one_set_of_defaults(made):
    default = Settings()
    names = ("mode", "weight", "scale", "fraction", "input_activation", "gradient", "reduction")
    parameters = inspect.signature(made).parameters
    assert {name: parameters[name].default for name in names} == {name: getattr(default, name) for name in names}


def test_the_default_is_what_the_rule_chose():
    """From every net that was trained, and confirmed on fresh seeds without a death."""
    found, default = loss.safety_verdict(RESULTS), Settings()
    assert found.chosen is not None
    assert found.chosen.loss == (default.reach, default.scale, default.mode, "all")
    assert found.chosen.lam == default.weight
    assert default.reduction == "mean"
    assert found.confirmed
    assert not found.cells[found.chosen].killed
    assert not found.fresh[found.chosen].killed


def test_the_map_is_large_enough():
    """Gradient × scale × mode × λ over three decades × two learning rates × depth × start × norm, five seeds."""
    found = loss.safety_verdict(RESULTS)
    losses = {one.loss for one in found.cells if one.loss.layers == "all"}
    assert {loss.gradient for loss in losses} == {"both", "reverse", "weights"}
    assert {loss.scale for loss in losses} == {"sum", "mean", "relative", "ratio", "anchored"}
    assert {loss.mode for loss in losses} == {"full", "layerwise", "input"}
    places = {one.place for one in found.cells}
    assert max(places) / min(places) == pytest.approx(1000)
    assert found.contexts == 54
    assert found.plain >= 54 * 5


def test_a_users_small_nets():
    """None is dead, and none is worse but by noise: three standard errors of the paired difference."""
    found = records.read(RESULTS / "bench", "small-nets*").values()
    assert all(not record.get("settings") for record in found)
    assert len({one["net"] for record in found for one in record["nets"]}) >= 7
    for one in (one for record in found for one in record["nets"]):
        gains = [b - a for a, b in zip(one["plain"], one["racecar"], strict=True)]
        mean = sum(gains) / len(gains)
        error = (sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains)) ** 0.5
        assert min(one["racecar"]) >= loss.DEAD, one["net"]
        assert mean >= -max(3 * error, 0.005), one["net"]
