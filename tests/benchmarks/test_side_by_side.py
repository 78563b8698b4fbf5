"""Kinds of steps in processes of their own, and our step beside the one by hand."""

import multiprocessing
import warnings
from statistics import median

import pytest
import torch

from benchmarks.bench import growth
from benchmarks.bench.kinds import ByHand, PublishedSrip, Srip
from benchmarks.bench.side_by_side import groups, run_side_by_side
from benchmarks.bench.tables import compare_with_hand
from racecar.bench.kinds import PLAIN, ReverseKind, reverse_kinds
from racecar.bench.run import run
from racecar.bench.workload import StepOptions
from racecar_lab.networks.resnet import cifar_resnet

CPU = StepOptions()


def tiny(name: str):
    torch.manual_seed(0)
    model = (
        cifar_resnet(8, width=2) if name == "resnet" else torch.nn.Sequential(torch.nn.Linear(192, 3), torch.nn.GELU())
    )
    return model, torch.rand(8, 3, 8, 8) if name == "resnet" else torch.rand(8, 192)


def test_ours_over_by_hand():
    kinds = [PLAIN, ReverseKind(1.0), ReverseKind(1.0, 2), ReverseKind(1.0, gradient="both"), ByHand(1.0), Srip()]
    resnet, other = map(compare_with_hand, run(["resnet", "gelu"], tiny, CPU, kinds, rounds=1))
    steps = {step["step"]: step for step in resnet["steps"]}
    assert [step["error"] for step in steps.values()] == [None] * len(kinds)
    ratio = median(steps["racecar 1"]["seconds"]) / median(steps["by hand 1"]["seconds"])
    assert steps["racecar 1"]["over_by_hand"] == pytest.approx(ratio)
    assert [name for name, step in steps.items() if "over_by_hand" in step] == ["racecar 1"]
    exact = resnet["flops"]["exact"] / resnet["flops"]["plain"]
    assert steps["by hand 1"]["floor"] == pytest.approx(exact)
    assert "floor" not in steps["srip"]
    assert "by hand 1" not in [step["step"] for step in other["steps"]], "nobody wrote one, which is no failure"


def test_what_is_compiled_once_is_one_group():
    kinds = reverse_kinds([0.5], [1, 2], ["reverse", "weights"])
    assert groups(kinds) == [[PLAIN], kinds[1:3], kinds[3:]]


@pytest.fixture
def forks(monkeypatch, recwarn):
    """Processes that are forked from this one. (Those that start anew: cli/test_current_folder.py.)"""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
    warnings.simplefilter("ignore", DeprecationWarning)  # that threads are not forked


@pytest.mark.forks
def test_processes(forks):
    """Every kind in a process of its own leaves the record of one process but for times."""
    chosen, runs = reverse_kinds([0.25], [1, 2]), []
    for jobs in (1, 2):
        (good,) = run_side_by_side(["linear depth=2 width=4 batch=8"], growth.open_size, CPU, chosen, 2, jobs)
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
    names = ["import os; os._exit(3)", "int('none')"]
    dead, bad = run_side_by_side(names, exec, CPU, [PLAIN], 1, jobs=2)
    assert dead["error"].startswith("its process ended")
    assert bad["error"].startswith("ValueError")
    assert [dead["model"], bad["model"]] == names


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    options = StepOptions("cuda", half=True, compile=True, graphs=True)
    kinds = [*reverse_kinds([0.25], [1, 2]), ByHand(0.25), Srip(), PublishedSrip()]
    (model,) = run_side_by_side(["conv depth=3 width=8 batch=64"], growth.open_size, options, kinds, 2, jobs=4)
    assert [(step["step"], step["error"]) for step in model["steps"]] == [(kind.label, None) for kind in kinds]
    for step in model["steps"]:
        assert step["captured"] is (step["way"] != "srip as published")
        assert step["memory"] > 0
