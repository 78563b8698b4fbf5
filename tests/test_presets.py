"""Settings by name."""

from pathlib import Path

import pytest
import torch
from torch import nn

from racecar import Racecar, presets

ROOT = Path(__file__).parents[1]


def net():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize("preset", presets.PRESETS, ids=lambda preset: preset.name)
def test_each_makes_a_racecar_whose_plan_names_it(preset):
    assert getattr(presets, preset.name) is preset
    x = torch.rand(4, 1, 8, 8)
    rr = Racecar(net(), x, **preset)
    assert str(rr.plan).endswith(f", preset {preset.name}")
    rr(x)[1].backward()
    assert rr.plan.preset == preset.name
    before = dict(preset)
    rr.weight = 0.5
    assert "preset" not in str(rr.plan), "its λ is another one now"
    assert dict(preset) == before
    assert Racecar(net(), x, **{**preset, "fraction": 0.5}).plan.preset == ""


@pytest.mark.parametrize("preset", presets.PRESETS, ids=lambda preset: preset.name)
def test_none_can_be_changed(preset):
    with pytest.raises(TypeError):
        preset["mode"] = "full"
    if not isinstance(preset["weight"], float):
        with pytest.raises(TypeError):
            preset["weight"]["*"] = 3.0


def test_the_default_is_no_preset():
    x = torch.rand(4, 1, 8, 8)
    rr = Racecar(net(), x)
    assert (rr.mode, rr.plan.preset) == ("layerwise", "")
    rr.weight = {"*": torch.tensor(0.1), "@head": 0}
    rr.mode = "linear"
    assert rr.plan.preset == ""
    rr.weight = {"@head": 0, "*": 0.1}
    assert rr.plan.preset == "", "later patterns win: here all layers have λ"
    rr.weight = {"*": 0.1, "@head": 0.0}
    assert rr.plan.preset == "keep_learning"
