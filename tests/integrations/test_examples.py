"""The examples run, offline and as they stand, and what they train learns something."""

import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def timm_works() -> bool:
    """It needs torchvision, whose builds for a GPU do not import beside a torch for the CPU."""
    try:
        import timm  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


NAMES = ["plain_loop", "lightning_callback", "fabric_loop", "accelerate_loop"]
NAMES += [pytest.param("transformers_trainer", marks=pytest.mark.soak)]
TIMM = pytest.param("timm_loop", marks=pytest.mark.skipif(not timm_works(), reason="needs timm and torchvision"))


@pytest.mark.parametrize("name", [*NAMES, TIMM])
def test_example(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "4" if name == "plain_loop" else "3"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other libraries say about themselves
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert float(re.findall(r"accuracy (\d\.\d+)", said)[-1]) > 0.6
    assert not list(EXAMPLES.glob("out"))


@pytest.mark.soak
def test_a_net_that_keeps_learning_beside_one_that_does_not(monkeypatch, capsys):
    """Chance is 0.1. What is looked at says so, too."""
    monkeypatch.setattr(sys, "argv", ["keep_learning", "--tasks", "7"])
    runpy.run_path(str(EXAMPLES / "keep_learning.py"), run_name="__main__")
    said = capsys.readouterr().out
    plain, kept = (float(one) for one in re.findall(r"accuracy (\d\.\d+)", said))
    assert plain < 0.3
    assert kept > 0.9
    before, after = re.findall(r"start in (\d) of 5 layers", said)
    assert int(after) < int(before)


@pytest.mark.soak
def test_what_comes_back_of_three_nets(monkeypatch, capsys):
    """docs/reverse.md: layer by layer an untrained net looks invertible; training saves most gradient steps."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["run_backwards", "--seeds", "1"])
    runpy.run_path(str(EXAMPLES / "run_backwards.py"), run_name="__main__")
    rows = [re.findall(r"(-?[\d.]+) to ", line) for line in capsys.readouterr().out.splitlines()[2:]]
    untrained, plain, ours = ([float(one) for one in row] for row in rows)
    assert min(untrained[0], plain[0], ours[0]) > 0.7
    assert untrained[1] < 0.3 < ours[1]
    assert ours[2] <= ours[3] / 4
    assert ours[2] <= plain[2] / 4
