"""The defaults are what the rule chose from the published map, and one place has them."""

import inspect
from pathlib import Path

import pytest

from benchmarks import records
from benchmarks.tables import loss
from racecar import Racecar
from racecar.functional import reverse_loss
from racecar.reverse.settings import Settings
from racecar_lab.experiments.safety.design import fields_of

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
    wanted = {"gradient": default.reach, "scale": default.scale, "mode": default.mode, "layers": "all"}
    assert fields_of(found.chosen) == {**wanted, "weight": default.weight}
    assert default.reduction == "mean"
    assert found.confirmed
    assert found.cells["nets", "killed"][found.chosen] == found.fresh["nets", "killed"][found.chosen] == 0


def test_the_map_is_large_enough():
    """Gradient × scale × mode × λ over three decades × two learning rates × depth × start × norm, five seeds."""
    found = loss.safety_verdict(RESULTS)
    losses = [name.split(":") for name, _ in found.cells.index if not name.endswith(":body")]
    gradients, scales, modes = map(set, zip(*losses, strict=True))
    assert gradients == {"both", "reverse", "weights"}
    assert scales == {"sum", "mean", "relative", "ratio", "anchored"}
    assert modes == {"full", "layerwise", "input"}
    places = found.cells.index.get_level_values("place")
    assert max(places) / min(places) == pytest.approx(1000)
    assert found.counts["contexts"] == 54
    assert found.counts["plain"] >= 54 * 5


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
