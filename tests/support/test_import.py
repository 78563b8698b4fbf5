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


@pytest.mark.parametrize("first", ["Racecar", "Every", "rules"])
def test_every_public_name(first):
    """Whichever is asked for first."""
    code = "import sys, racecar; print(*(getattr(racecar, name).__name__.rpartition('.')[2] for name in sys.argv[1:]))"
    names = [first, *racecar.__all__]
    found = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert found.stdout.split() == names
    assert set(racecar.__all__) <= set(dir(racecar))


def test_other_names():
    with pytest.raises(AttributeError, match="'racecar' has no attribute 'Racecars'"):
        racecar.Racecars  # noqa: B018
