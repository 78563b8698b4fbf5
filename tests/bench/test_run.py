"""Whole runs on tiny nets: records and failures."""

import json
from statistics import median

import pytest
import torch
from torch import nn

from racecar.bench import record, record_table
from racecar.bench.kinds import reverse_kinds
from racecar.bench.run import recorded, run
from racecar.bench.workload import StepOptions
from racecar_lab.networks.resnet import cifar_resnet

CPU = StepOptions()


def tiny(name: str):
    torch.manual_seed(0)
    if name == "resnet":
        return cifar_resnet(8, width=2), torch.rand(8, 3, 8, 8)
    if name == "shift":
        return Shift(), torch.rand(8, 3)
    raise ValueError(f"unknown {name}\nin two lines")


class Shift(nn.Module):
    """Can be trained, and has nothing to reverse."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x + self.bias


def test_record(tmp_path):
    kinds = reverse_kinds([1.0, 0.25], [1, 2])
    made = recorded(run(["resnet"], tiny, CPU, kinds, rounds=3), "racecar bench", CPU, 3, tmp_path / "bench.json")
    assert record.read(tmp_path / "bench.json") == json.loads(json.dumps(made))
    assert {"command", "commit", "seed", "torch", "python", "device", "threads", "wall_s"} <= set(made)
    (resnet,) = made["models"]
    assert resnet["parameters"] == sum(p.numel() for p in cifar_resnet(8, width=2).parameters())
    assert resnet["inputs"] == [[8, 3, 8, 8]]
    steps = {step["step"]: step for step in resnet["steps"]}
    assert list(steps) == [kind.label for kind in kinds]
    plain = steps["plain"]["seconds"]
    for step in steps.values():
        assert step["error"] is None
        assert len(step["seconds"]) == 3
        assert step["median_ms"] == pytest.approx(1000 * median(step["seconds"]))
        assert step["ratio"] == pytest.approx(median(step["seconds"]) / median(plain))
        assert step["memory"] is None
        assert step["captured"] is False
    exact = resnet["flops"]["exact"] / resnet["flops"]["plain"]
    assert steps["racecar 1"]["floor"] == pytest.approx(exact)
    assert steps["racecar 1/4 every 2"]["floor"] == pytest.approx(1 + (exact - 1) / 8)
    assert steps["racecar 1/4"]["samples"] == 2
    assert steps["racecar 1/4"]["over_floor"] == pytest.approx(
        steps["racecar 1/4"]["ratio"] / steps["racecar 1/4"]["floor"]
    )


def test_a_kind_that_fails_does_not_lose_the_others():
    made = recorded(run(["shift"], tiny, CPU, reverse_kinds([1.0]), rounds=2), "racecar bench", CPU, 2, None)
    steps = {step["step"]: step for step in made["models"][0]["steps"]}
    assert steps["plain"]["ratio"] == 1
    assert "no weighted layer" in steps["racecar 1"]["error"]
    assert "racecar 1 failed: NothingToReverse" in record_table.markdown(made)


def test_a_model_that_fails_does_not_lose_the_others(tmp_path):
    """What was measured is written before the next model begins."""
    path = tmp_path / "bench.json"

    def open_model(name):
        assert path.exists() == (name == "bad")
        return tiny(name)

    measured = run(["shift", "bad"], open_model, CPU, reverse_kinds([1.0]), 1)
    made = recorded(measured, "racecar bench", CPU, 1, path)
    good, bad = made["models"]
    assert bad == {"model": "bad", "error": "ValueError: unknown bad in two lines"}
    assert good["steps"][0]["median_ms"] > 0
    rows = record_table.rows(made)
    assert rows[-1][:2] == ["bad", "failed: ValueError: unknown bad in two lines"]
    assert {len(row) for row in rows} == {len(record_table.head())}
    with pytest.raises(ValueError, match="nothing could be measured: bad: ValueError: unknown bad"):
        recorded(run(["bad"], tiny, CPU, reverse_kinds([1.0]), 1), "racecar bench", CPU, 1, None)


def test_no_record(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON file"):
        record.read(tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"models": []}')
    with pytest.raises(ValueError, match="is no record of racecar bench"):
        record.read(tmp_path / "b.json")


# --- on a GPU -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compiled", [False, True])
def test_graphs_and_memory(compiled):
    options = StepOptions("cuda", half=True, compile=compiled, graphs=True)
    (model,) = run(["resnet"], tiny, options, reverse_kinds([1.0, 0.25], [1, 2]), rounds=2)
    for step in model["steps"]:
        assert step["error"] is None
        assert step["captured"]
        assert step["memory"] > 0
    steps = {step["step"]: step for step in model["steps"]}
    assert steps["racecar 1"]["memory"] > steps["plain"]["memory"]
