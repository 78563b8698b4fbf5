"""Fixtures that run command lines in this process."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from racecar.cli.app import run

NETS = """
import torch
from torch import nn

class Odd(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()

def conv():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))

def wide():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 5))

def flat256():
    return nn.Sequential(nn.Linear(256, 9), nn.Tanh(), nn.Linear(9, 3))

def deep():
    from tests.networks import ResNet
    return ResNet(50, width=8)

def stiff():
    return flat().requires_grad_(False)

def flat():
    return nn.Sequential(nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 3))

def tokens():
    return nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4))

def odd():
    return nn.Sequential(nn.Linear(4, 4), Odd(), nn.Linear(3, 2))

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x, y):
        return self.left(x) + self.right(y)

def joined():
    return nn.Sequential(Doubled(), nn.Linear(2, 2))

class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()

    def forward(self, x):
        return self.pair(x, nn.functional.pad(x, (0, 1)))

def says():
    model = flat()
    model.example_input_array = torch.zeros(2, 64)
    return model

def width(n):
    return nn.Linear(n, n)

def talkative():
    raise RuntimeError("one\\ntwo\\n\\n  three")

def nothing():
    return nn.ReLU()

class Scope:
    instance = nn.Linear(4, 2)

number = 7
"""


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path) -> Callable[..., SimpleNamespace]:
    """Run `racecar …` in a folder with the module `nets`; returns status, out and err."""
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    monkeypatch.setattr("racecar.support.progress.INTERVAL", float("inf"))  # no lines of progress on a slow machine

    def call(*arguments: str) -> SimpleNamespace:
        state = torch.get_rng_state()
        status = run([str(one) for one in arguments])
        torch.set_rng_state(state)
        return SimpleNamespace(status=status, **capsys.readouterr()._asdict())

    yield call
    sys.modules.pop("nets", None)


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Figures are made, but neither laid out nor drawn, which takes most of the time."""

    def save(figure, path):
        assert figure.axes
        path.with_name(f"{path.name}.png").write_bytes(b"\x89PNG")
        path.with_name(f"{path.name}.svg").write_text("<svg")

    def draw(figure, kind):
        assert figure.axes
        return b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>'

    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda layout, figure: None)
    monkeypatch.setattr("racecar.inspect.style.save", save)
    monkeypatch.setattr("racecar_lab.report.pictures._draw", draw)


@pytest.fixture
def refused(cli) -> Callable[..., str]:
    """Run a command line that must end with status 2 and one line on stderr; returns the line."""

    def call(*arguments: str) -> str:
        result = cli(*arguments)
        assert result.status == 2
        assert result.out == ""
        assert result.err.startswith("racecar: ")
        assert result.err.count("\n") == 1
        return result.err

    return call
