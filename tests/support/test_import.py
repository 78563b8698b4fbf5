"""What ``import racecar`` brings: every public name, and torch only when it is needed."""

import subprocess
import sys

import pytest

import racecar


def test_torch_waits():
    """The command line says what it can, and starts workers, before torch is imported, which takes seconds."""
    code = "import sys, racecar, racecar.cli.app, racecar.lab.running.engines.processes; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


EACH = """
import os, sys, torch
for first in sys.argv[1:4]:
    if not (child := os.fork()):
        import racecar
        print(*(getattr(racecar, name).__name__.rpartition(".")[2] for name in (first, *sys.argv[4:])), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_every_public_name():
    """Whichever is asked for first; each time in a process that has imported torch alone."""
    firsts, names = ["Racecar", "Every", "rules"], racecar.__all__
    command = [sys.executable, "-c", EACH, *firsts, *names]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split() for line in found.stdout.splitlines()] == [[first, *names] for first in firsts]
    assert set(racecar.__all__) <= set(dir(racecar))


def test_other_names():
    with pytest.raises(AttributeError, match="'racecar' has no attribute 'Racecars'"):
        racecar.Racecars  # noqa: B018
