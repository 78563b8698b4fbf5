"""The lines of a plan as records, from which its table is made."""

import torch
from torch import nn

from racecar import Racecar


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
