"""Models with layers of several precisions: the loss of the same model in float64, as far as they are precise."""

import pytest
import torch
from torch import nn

from racecar import Racecar
from tests.pairwise import pairwise

NORMS = {
    "none": lambda: nn.Identity(),
    "batch": lambda: nn.BatchNorm2d(6),
    "group": lambda: nn.GroupNorm(2, 6),
    "instance": lambda: nn.InstanceNorm2d(6, affine=True),
    "layer": lambda: nn.LayerNorm([6, 6, 6]),
}
PAIRS = {
    "float64 head": (torch.float32, torch.float64, 1e-5),
    "float32 head": (torch.float64, torch.float32, 1e-5),
    "bfloat16 body": (torch.bfloat16, torch.float32, 0.05),
    "float16 body": (torch.float16, torch.float32, 0.01),
}


class Mixed(nn.Module):
    """Convolutions in one precision; the norm and the head in another."""

    def __init__(self, norm: str, body: torch.dtype, rest: torch.dtype):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.head = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 4, 3), nn.Linear(4, 3)
        self.norm = NORMS[norm]()
        self.cast(body, rest)

    def cast(self, body: torch.dtype, rest: torch.dtype) -> "Mixed":
        self.body, self.rest = body, rest
        for part, dtype in ((self.a, body), (self.b, body), (self.norm, rest), (self.head, rest)):
            part.to(dtype)
        return self

    def forward(self, x):
        h = torch.relu(self.norm(self.a(x).to(self.rest)).to(self.body))
        return self.head(torch.relu(self.b(h)).mean((2, 3)).to(self.rest))


@pytest.mark.parametrize("norm, pair, gradient", pairwise([*NORMS], [*PAIRS], ["reverse", "both", "weights"]))
def test_layers_of_two_precisions(norm: str, pair: str, gradient: str):
    body, rest, tolerance = PAIRS[pair]
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(body)
    for mode in ("layerwise", "full"):
        model = Mixed(norm, body, rest)
        rr = Racecar(model, x, mode=mode, weight=1.0, gradient=gradient)
        output, loss = rr(x)
        (output.sum() + loss).backward()
        assert loss.dtype == (torch.float64 if torch.float64 in (body, rest) else torch.float32)
        assert all(p.grad is not None and p.grad.dtype == p.dtype for p in model.parameters())
        precise = Mixed(norm, body, rest).cast(torch.float64, torch.float64)
        _, expected = Racecar(precise, x.double(), mode=mode, weight=1.0, gradient=gradient)(x.double())
        torch.testing.assert_close(loss.double(), expected, rtol=tolerance, atol=0)
