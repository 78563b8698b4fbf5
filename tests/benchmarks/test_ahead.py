"""Our step beside the one by hand, and kinds of steps that are compiled ahead in processes of their own."""

import os
from pathlib import Path
from statistics import median

import pytest
import torch

from benchmarks.bench import depth
from benchmarks.bench.ahead import compile_ahead
from benchmarks.bench.kinds import ByHand, PublishedSrip, Srip
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


def broken(name: str):
    """Says in a file in which process it was called, and fails."""
    Path(name).write_text(str(os.getpid()))
    raise ValueError("no such net")


@pytest.mark.soak
def test_compiling_ahead(tmp_path):
    """In processes of their own, one for each; a net that fails says so where it is timed."""
    names = [str(tmp_path / name) for name in ("a", "b")]
    compile_ahead(names, broken, CPU, [PLAIN], jobs=2)
    assert len({Path(name).read_text() for name in names} | {str(os.getpid())}) == 3
    (model,) = run(names[:1], broken, CPU, [PLAIN], 1)
    assert model["error"] == "ValueError: no such net"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    options = StepOptions("cuda", half=True, compile=True, graphs=True)
    kinds = [*reverse_kinds([0.25], [1, 2]), ByHand(0.25), Srip(), PublishedSrip()]
    names = depth.names([3])[1:]
    compile_ahead(names, depth.open_net, options, kinds, jobs=4)
    (model,) = run(names, depth.open_net, options, kinds, 2)
    assert [(step["step"], step["error"]) for step in model["steps"]] == [(kind.label, None) for kind in kinds]
    for step in model["steps"]:
        assert step["captured"] is (step["way"] != "srip as published")
        assert step["memory"] > 0
