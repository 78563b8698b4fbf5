"""No command imports from the current folder, but for a TARGET that the user names (nor does Ray: test_ray)."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.lab.tiny import ROOT, hostile_folder

NETS = """
import colorsys
from torch import nn
from sheep import net
"""
SHEEP = """
from torch import nn
def net():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
"""
COMMANDS = {
    "workers": "run peaks --quick --set epochs=1 --set nets=linear --variants Std --seeds 2 --workers 2",
    "a TARGET": "bench --device cpu --models nets:net --input 4,6 --rounds 1 --fractions 1",
}


@pytest.fixture
def hostile(tmp_path):
    folder = hostile_folder(tmp_path)
    (folder / "nets.py").write_text(NETS)
    (folder / "sheep.py").write_text(SHEEP)
    return folder


def disarm(folder):
    """Remove what Python itself runs there for -m, before it begins with the module that is named; and modules that
    this Python does not have, such as Windows': where a TARGET is named, what is nowhere else is found there."""
    for name in sys.stdlib_module_names:
        if name not in sys.builtin_module_names and importlib.util.find_spec(name) is None:
            (folder / f"{name}.py").unlink()
    run = folder.parent / "run"
    (folder / "empty").mkdir()
    (folder / "empty" / "empty.py").touch()
    while subprocess.run([sys.executable, "-m", "empty.empty"], cwd=folder, capture_output=True) and run.exists():
        for name in run.read_text().split():
            (folder / f"{name}.py").unlink(missing_ok=True)
        run.unlink()


@pytest.mark.soak
@pytest.mark.parametrize("way, command", [("script", "workers"), ("-m", "a TARGET")])
def test_nothing_there_is_run(way, command, hostile, tmp_path):
    """No file there is run, however the command is started and whatever processes it starts; and the command works."""
    start = [str(tmp_path / "racecar")] if way == "script" else ["-m", "racecar.cli"]
    (tmp_path / "racecar").write_text("from racecar.cli import main\nif __name__ == '__main__':\n    main()\n")
    if way == "-m":
        disarm(hostile)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    given = [sys.executable, *start, *COMMANDS[command].split()]
    done = subprocess.run(given, cwd=hostile, env=environment, capture_output=True, text=True, timeout=300)
    assert not (tmp_path / "run").exists(), (tmp_path / "run").read_text()
    assert done.returncode == 0, done.stderr
