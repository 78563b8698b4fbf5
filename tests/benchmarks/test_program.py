"""python -m benchmarks.bench: what it has beside `racecar bench`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench import depth
from benchmarks.bench.__main__ import main

ROOT = Path(__file__).parents[2]
FEW = ("--device", "cpu", "--rounds", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.soak
def test_depth(folder, monkeypatch, capsys):
    monkeypatch.setattr(depth, "FAMILIES", dict.fromkeys(depth.FAMILIES, (16, 4)))
    assert main([*FEW, "--fractions", "1", "--depth", "2,4", "--out", "depth.json"]) == 0
    assert "ms per layer" in capsys.readouterr().out
    assert main(["--show", "depth.json"]) == 0
    assert "| ms per layer |" in capsys.readouterr().out


@pytest.mark.soak
def test_processes_that_start_anew(folder):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    given = (*FEW, "--models", "mlp", "--batch", "2", "--fractions", "1/2", "--no-srip", "--no-by-hand", "--jobs", "2")
    command = [sys.executable, "-m", "benchmarks.bench", *given]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "racecar 1/2" in done.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--depth", "1,x"], "--depth '1,x'"),
        (["--depth", "2", "--models", "mlp"], "leave out --models"),
        (["--out", "/proc/sys/out/f.json", "--depth", "2"], "cannot be written"),
        (["--models", "vgg99"], "unknown net 'vgg99'"),
        (["--fraction", "1"], "--fraction"),
    ],
)
def test_user_errors_are_one_line(arguments, words, capsys):
    assert main(arguments) == 2
    text = capsys.readouterr()
    assert text.out == ""
    (line,) = text.err.splitlines()
    assert line.startswith("benchmarks.bench: ")
    assert words in line
