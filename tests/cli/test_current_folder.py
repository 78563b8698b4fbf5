"""No command imports from the current folder, but for a TARGET that the user names."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.tiny import STEPS, started, wait_for

ROOT = Path(__file__).parents[2]
OTHERS = ("torch", "numpy", "typer", "rich", "safetensors", "matplotlib", "scipy", "PIL", "jinja2", "tests")
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
    "a fork server": "run peaks --quick --set epochs=1 --set nets=linear --variants Std --seeds 2 --workers 2",
    "processes that start anew": "bench --device cpu --models nets:net --input 4,6 --rounds 1 --fractions 1 --no-srip "
    "--no-by-hand --jobs 2",
}


@pytest.fixture
def hostile(tmp_path):
    """A folder with a file for every module of Python's own, and some of others, that leaves a trace when it is run."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in (*sys.stdlib_module_names, *OTHERS):
        (folder / f"{name}.py").write_text(
            f"with open({str(tmp_path / 'run')!r}, 'a') as file: print({name!r}, file=file)"
        )
    (folder / "nets.py").write_text(NETS)
    (folder / "sheep.py").write_text(SHEEP)
    return folder


def disarm(folder):
    """Remove what Python itself runs there for -m, before it begins with the module that is named."""
    run = folder.parent / "run"
    (folder / "empty").mkdir()
    (folder / "empty" / "empty.py").touch()
    while subprocess.run([sys.executable, "-m", "empty.empty"], cwd=folder, capture_output=True) and run.exists():
        for name in run.read_text().split():
            (folder / f"{name}.py").unlink(missing_ok=True)
        run.unlink()


@pytest.mark.parametrize("way, command", [("script", "a fork server"), ("-m", "processes that start anew")])
def test_nothing_there_is_run(way, command, hostile, tmp_path):
    """However the command is started, and whatever it starts itself."""
    start = [str(tmp_path / "racecar")] if way == "script" else ["-m", "racecar.cli"]
    (tmp_path / "racecar").write_text("from racecar.cli import main\nif __name__ == '__main__':\n    main()\n")
    if way == "-m":
        disarm(hostile)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    given = [sys.executable, *start, *COMMANDS[command].split()]
    done = subprocess.run(given, cwd=hostile, env=environment, capture_output=True, text=True, timeout=300)
    assert not (tmp_path / "run").exists(), (tmp_path / "run").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nor_by_ray_which_can_be_terminated(hostile, tmp_path):
    """Its workers would look there first, and it takes SIGTERM for itself."""
    pytest.importorskip("ray")
    (tmp_path / "racecar").write_text("from racecar.cli import main\nif __name__ == '__main__':\n    main()\n")
    words = "run peaks --quick --set epochs=100000 --set nets=linear --variants Std --seeds 1 --workers 1 --engine ray"
    given = [sys.executable, str(tmp_path / "racecar"), *words.split(), "--checkpoint-every", "0", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", STEPS: str(tmp_path)}
    one = subprocess.Popen(given, cwd=hostile, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_for(lambda: list(hostile.glob("out/checkpoints/*.pt")), 120)
        one.terminate()
        said = one.communicate(timeout=20)[1]
        assert wait_for(lambda: not started(tmp_path), 20)
    finally:
        for pid in started(tmp_path):
            os.kill(pid, signal.SIGKILL)
        one.wait()
    again = f"racecar {words} --checkpoint-every 0 --out out --resume"
    assert said.splitlines()[-1] == f"racecar: terminated; what was finished is in out; to go on: {again}"
    assert one.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists(), (tmp_path / "run").read_text()
