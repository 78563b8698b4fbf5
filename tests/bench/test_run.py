"""Whole runs on tiny nets: records, failures, processes, growth."""

import json
import multiprocessing
import warnings
from statistics import median

import pytest
import torch
from torch import nn

from racecar.bench import record, record_table
from racecar.bench.kinds import PLAIN, kinds
from racecar.bench.run import run
from racecar.bench.workload import Circumstances
from racecar.support import files
from racecar_lab.bench import growth
from racecar_lab.networks.resnet import cifar_resnet

CPU = Circumstances()


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


def whole(models, **settings):
    base = {"compile": False, "graphs": False, "precision": "float32", "rounds": 3, "grow": ""}
    return {**record.circumstances("racecar bench", "cpu"), "settings": base | settings, "models": models}


def test_record(tmp_path, capsys):
    models = run(["resnet"], tiny, CPU, kinds([1.0, 0.25], [1, 2]), rounds=3)
    made = whole(models)
    files.write_json(tmp_path / "bench.json", made)
    assert record.read(tmp_path / "bench.json") == json.loads(json.dumps(made))
    assert {"command", "commit", "seed", "torch", "python", "device", "threads"} <= set(made)
    resnet = models[0]
    assert resnet["parameters"] == sum(p.numel() for p in cifar_resnet(8, width=2).parameters())
    assert resnet["inputs"] == [[8, 3, 8, 8]]
    steps = {step["step"]: step for step in resnet["steps"]}
    assert list(steps) == [kind.label for kind in kinds([1.0, 0.25], [1, 2])]
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
    hand = median(steps["by hand 1"]["seconds"])
    assert steps["racecar 1"]["over_by_hand"] == pytest.approx(median(steps["racecar 1"]["seconds"]) / hand)
    assert "over_by_hand" not in steps["racecar 1 every 2"]
    assert "floor" not in steps["srip"]
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("resnet: racecar 1/4") for line in lines) == 2


def test_a_kind_that_fails_does_not_lose_the_others():
    (model,) = run(["shift"], tiny, CPU, kinds([1.0]), rounds=2)
    steps = {step["step"]: step for step in model["steps"]}
    assert "by hand 1" not in steps, "nobody wrote one, which is no failure"
    assert steps["plain"]["ratio"] == 1
    assert "no weighted layer" in steps["racecar 1"]["error"]
    assert "no layer found" in steps["srip"]["error"]
    text = record_table.markdown(whole([model]))
    assert "racecar 1 failed: NothingToReverse" in text


def test_a_model_that_fails_does_not_lose_the_others():
    kept = []
    chosen = kinds([1.0], hand=False, ort=False)
    bad, good = run(["bad", "shift"], tiny, CPU, chosen, 1, keep=lambda records: kept.append(list(records)))
    assert kept == [[bad], [bad, good]]
    assert bad == {"model": "bad", "error": "ValueError: unknown bad in two lines"}
    assert good["steps"][0]["median_ms"] > 0
    rows = record_table.rows(whole([bad, good]))
    assert rows[0][:2] == ["bad", "failed: ValueError: unknown bad in two lines"]
    assert {len(row) for row in rows} == {len(record_table.HEAD)}


@pytest.fixture
def forks(monkeypatch, recwarn):
    """Processes that are forked from this one. (Those that start anew: cli/test_current_folder.py.)"""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
    warnings.simplefilter("ignore", DeprecationWarning)  # that threads are not forked


@pytest.mark.forks
def test_processes(forks):
    """Every kind in a process of its own leaves the record of one process but for times."""
    chosen, runs = kinds([0.25], hand=False, ort=False), []
    for jobs in (1, 2):
        (good,) = run(["linear depth=2 width=4 batch=8"], growth.open_size, CPU, chosen, 2, jobs)
        runs.append(good)
        assert good["model"] == "linear depth=2 width=4 batch=8"
        assert [step["step"] for step in good["steps"]] == [kind.label for kind in chosen]
        for step in good["steps"]:
            assert step["error"] is None
            assert len(step["seconds"]) == 2
            for measured in ("seconds", "median_ms", "quartiles_ms", "ratio", "ratio_quartiles", "over_floor"):
                step.pop(measured, None)
            for measured in ("first_s", "plan_s"):
                assert step.pop(measured, 1) > 0
        good.pop("burst")
    assert runs[0] == runs[1]


@pytest.mark.forks
def test_processes_that_fail(forks):
    """One dies, and one is given a net that is none."""
    names, kept = ["import os; os._exit(3)", "int('none')"], []
    dead, bad = run(names, exec, CPU, [PLAIN], 1, jobs=2, keep=lambda records: kept.append(len(records)))
    assert dead["error"].startswith("its process ended")
    assert bad["error"].startswith("ValueError")
    assert [dead["model"], bad["model"]] == names
    assert kept == [1, 2]


def test_no_record(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON file"):
        record.read(tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"models": []}')
    with pytest.raises(ValueError, match="is no record of racecar bench"):
        record.read(tmp_path / "b.json")


# --- growth -------------------------------------------------------------------------------------------------------


def synthetic(grow: str, values, start: float, slopes):
    power = 2 if grow == "width" else 1
    return [
        {
            "model": name,
            "steps": [
                {"step": step, "median_ms": start + slope * getattr(growth.read_size(name), grow) ** power}
                for step, slope in slopes.items()
            ],
        }
        for name in growth.names(grow, values)
    ]


@pytest.mark.parametrize("grow", growth.GROWS)
def test_slopes(grow):
    models = synthetic(grow, [10, 30, 100, 1000], 2.0, {"plain": 0.5, "racecar 1": 1.1})
    for line in growth.lines(models, grow):
        assert line.values == [10, 30, 100, 1000]
        assert line.fit == pytest.approx((2.0, 0.5 if line.step == "plain" else 1.1))
        assert line.worst == pytest.approx(0, abs=1e-9)
    assert [row[3] for row in growth.rows(models, grow)] == ["1.000", "2.200"] * 2


def test_nets_that_grow():
    for family, depth, width, batch in [("linear", 3, 5, 7), ("conv", 2, 4, 6)]:
        name = f"{family} depth={depth} width={width} batch={batch}"
        model, x = growth.open_size(name)
        weights = [p for p in model.parameters() if p.dim() > 1]
        assert (len(weights), len(weights[1]), len(x)) == (depth + 1, width, batch)
        assert model(x).shape == (batch, growth.CLASSES)
        assert str(growth.read_size(name)) == name


def test_figure():
    models = synthetic("depth", [10, 100], 2.0, {"plain": 0.5, "racecar 1": 1.1})
    figure = growth.figure(models, "depth")
    assert [axis.get_title() for axis in figure.axes] == ["linear", "conv"]
    points = figure.axes[0].lines[0]
    assert list(points.get_xdata()) == [10, 100]
    assert list(points.get_ydata()) == [7.0, 52.0]


# --- on a GPU -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compiled", [False, True])
def test_graphs_and_memory(compiled):
    how = Circumstances("cuda", half=True, compile=compiled, graphs=True)
    (model,) = run(["resnet"], tiny, how, kinds([1.0, 0.25], [1, 2]), rounds=2)
    for step in model["steps"]:
        assert step["error"] is None
        assert step["captured"] is (step["way"] != "srip as published")
        assert step["memory"] > 0
    steps = {step["step"]: step for step in model["steps"]}
    assert steps["racecar 1"]["memory"] > steps["plain"]["memory"]
