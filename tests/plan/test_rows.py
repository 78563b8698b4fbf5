"""The lines of a plan as records: what the table, ``racecar explain`` and users read."""

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.cli.inspect.explain import show
from tests.networks import NETWORKS


def table(rows):
    """Rows as a person would write them, told apart by two spaces."""
    return [
        [row.name or "(model)", row.kind, ["no", "yes"][row.constrained], row.source or "-", row.note] for row in rows
    ]


@pytest.mark.parametrize("name", ["mlp", "vgg", "reused", "cross_attention", "text"])
@pytest.mark.parametrize("mode", ["auto", "layerwise"])
def test_the_table_shows_them(name, mode, monkeypatch):
    """All of them and nothing else, in the terminal too; and they say what the entries say."""
    model, x = NETWORKS[name]()
    rr = Racecar(model, x, mode)
    rows = rr.plan.rows()
    head, line, *body, _ = str(rr.plan).splitlines()
    ends = [len(part) for part in line.split("  ")]
    starts = [sum(ends[:i]) + 2 * i for i in range(len(ends))]
    cut = [[text[a : a + n].strip() for a, n in zip(starts, ends, strict=True)] for text in body]
    assert cut == table(rows)
    shown = []
    monkeypatch.setattr("racecar.support.console.print_table", lambda *given: shown.append(given))
    show(rr.plan)
    assert [list(row) for row in shown[0][1]] == table(rows)
    assert tuple(shown[0][0]) == tuple(head.split())
    assert [row[:3] for row in rows[: len(rr.plan)]] == [(e.name, e.kind, e.constrained) for e in rr.plan]
    assert [row.name for row in rows[len(rr.plan) :]] == [one.name for one in rr.plan.uncovered]


def test_what_they_say():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), nn.Linear(5, 2)
    )
    x, mask = torch.rand(2, 3, 8, 8), torch.ones(3, 1, 1)
    rr = Racecar(model, x, "full", {"*": 0.5, "0": mask, "4": 0})
    rows = rr.plan.rows()
    rebuilt = rr.reconstruct(x)
    assert [row.shape for row in rows] == [tuple(one.shape[1:]) for one in rebuilt] == [(3, 8, 8), (4, 6, 6), (5,)]
    assert rows[0].weight is mask
    assert [row.weight for row in rows[1:]] == [0, 0.5]
    assert [row.happens for row in rows] == ["compared", "passed", "compared"]
    rr.weight = {"0": 2.0}
    assert [row.weight for row in rr.plan.rows()] == [2.0, 0, 0]
    assert [row.happens for row in rr.plan.rows()] == ["compared", "left out", "left out"]
    assert {(row.happens == "compared", row.name in rr.terms) for row in rr.plan.rows() if rr(x)} == {(1, 1), (0, 0)}


def test_shape_where_the_batch_is_second():
    """As of one sample: what a tensor weight broadcasts against."""

    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))

        def forward(self, x):
            return self.inner(x.transpose(0, 1))

    rows = Racecar(Turned(), torch.rand(3, 5, 4)).plan.rows()
    assert [row.shape for row in rows] == [(5, 4), (5, 3)]
