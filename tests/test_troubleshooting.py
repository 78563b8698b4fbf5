"""docs/troubleshooting.md quotes what is raised, word by word; docs/privacy.md is right about connections."""

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from racecar import Racecar, Unsupported
from racecar.watch import data_parallel

ROOT = Path(__file__).parent.parent
QUOTED = re.findall(r"```pytb\n(\w+): (.*)\n```", (ROOT / "docs" / "troubleshooting.md").read_text())
X = torch.rand(8, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x).relu()
        return self.head(x + self.second(x))


class Fourier(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).real


def without_lightning():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "lightning", None)
        patch.setitem(sys.modules, "lightning.pytorch", None)
        patch.delitem(sys.modules, "racecar.integrations.lightning", raising=False)
        import racecar.integrations.lightning  # noqa: F401


def compiled():
    model = nn.Linear(4, 3)
    model.compile()
    Racecar(model, X)


def dead():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.constant_(model[0].bias, -1)
    rr = Racecar(model, X)
    for _ in range(16):
        rr(X)


RAISED = [
    without_lightning,
    lambda: Racecar(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.LazyLinear(2)), X),
    compiled,
    lambda: Racecar(nn.Linear(5, 3), X),
    lambda: Racecar(Net(), X, mode="full"),
    lambda: Racecar(Net().requires_grad_(False), X),
    lambda: Racecar(Net(), X, weight={"*": 1, "haed": 0}),
    lambda: Racecar(nn.Sequential(nn.Linear(4, 4), Fourier(), nn.Linear(4, 2)), X),
    dead,
]


@pytest.mark.parametrize("quoted, cause", list(zip(QUOTED[:-1], RAISED, strict=True)))
def test_what_is_quoted_is_raised(quoted, cause):
    with pytest.raises((ValueError, TypeError, ImportError, UserWarning)) as caught:  # warnings are errors in tests
        cause()
    assert (caught.type.__name__, str(caught.value)) == quoted


def test_what_is_quoted_of_data_parallel():
    """From its parts: to raise it takes two processes, which tests/reverse/test_distributed.py has."""
    name, message = QUOTED[-1]
    assert name == Unsupported.__name__
    assert message.startswith(data_parallel._PASSED_BY)
    assert message.endswith(data_parallel._REMEDY)
    between = message.removeprefix(data_parallel._PASSED_BY).removesuffix(data_parallel._REMEDY)
    assert between in Path(data_parallel.__file__).read_text()


def test_one_module_opens_connections():
    """That of `racecar data fetch`, which nothing else calls."""
    network = re.compile(r"(?m)^\s*(?:from|import) (?:urllib\.request|http\.client|socket|requests|aiohttp|ftplib)\b")
    sources = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    opened = [path.name for path, text in sources.items() if network.search(text)]
    assert opened == ["download.py"]
    users = {path.name for path, text in sources.items() if re.search(r"import.*\bdownload\b|datasets\.download", text)}
    assert users == {"fetching.py"}
    callers = [path.name for path, text in sources.items() if re.search(r"import .*\bfetch\b", text)]
    assert sorted(callers) == ["__init__.py", "data.py"]  # racecar_lab.datasets hands it on to the command
