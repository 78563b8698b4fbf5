"""What the loss rewards: the table of docs/loss.md, held against gradients."""

from pathlib import Path

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.reverse.terms import GRADIENTS, SCALES

PAGE = Path(__file__).parents[2] / "docs" / "loss.md"
COLUMNS = ["scale", "the term", "size of ∂/∂s", "both", "reverse, d' too small", "reverse, d' too large", "weights"]
SIGNS = {"+": 1, "−": -1, "0": 0}
POWERS = {"∝ s": 1, "∝ 1/s": -1}


def read() -> dict[str, dict[str, str]]:
    """Scale → column → cell."""
    lines = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in PAGE.read_text().splitlines()]
    start = lines.index(COLUMNS) + 2
    rows = lines[start : lines.index([""], start)]
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in rows}


TABLE = read()


def derivative(scale: str, gradient: str, size: float, s: float, mode: str) -> tuple[float, float, list[nn.Linear]]:
    """∂/∂s of the middle layer's term, where the layer below gives s times as much, and the term; no biases. Also the
    layers, with the gradients that they got.

    Args:
        size: of the middle layer's weights; small ones rebuild too little, large ones too much.
    """
    torch.manual_seed(0)
    below, layer, above = (nn.Linear(6, 6, bias=False, dtype=torch.float64) for _ in range(3))
    for one, times in ((below, s), (layer, size), (above, 1.0)):
        nn.init.orthogonal_(one.weight, gain=times)
    model = nn.Sequential(below, nn.ReLU(), layer, nn.ReLU(), above)
    x = torch.randn(16, 6, dtype=torch.float64)
    rr = Racecar(model, x, mode, {"*": 0.0, "2": 1.0}, scale, gradient=gradient, reduction="mean")
    loss = rr(x)[1]
    loss.backward()
    slope = 0.0 if below.weight.grad is None else float((below.weight.grad * below.weight.detach()).sum() / s)
    return slope, float(loss.detach()), [below, layer, above]


def test_the_table_is_whole():
    assert set(TABLE) == set(SCALES)
    assert {column.split(",")[0] for column in COLUMNS[3:]} == set(GRADIENTS)


@pytest.mark.parametrize("mode", ["layerwise", "full"])
@pytest.mark.parametrize("column", COLUMNS[3:])
@pytest.mark.parametrize("scale", SCALES)
def test_signs_and_sizes(scale, column, mode):
    gradient = column.split(",")[0]
    wanted, power = SIGNS[TABLE[scale][column]], POWERS[TABLE[scale]["size of ∂/∂s"]]
    sizes = {"reverse, d' too small": [0.5], "reverse, d' too large": [2.0]}.get(column, [0.5, 2.0])
    for size in sizes:
        found = {s: derivative(scale, gradient, size, s, mode) for s in (0.01, 1.0)}
        slope, value, layers = found[1.0]
        assert value > 0
        assert layers[1].weight.grad.abs().sum() > 0  # its own weights always learn
        if wanted == 0:
            assert abs(slope) < 1e-12 * value
            continue
        assert slope * wanted > 1e-3 * value
        assert found[0.01][0] / slope == pytest.approx(0.01**power)


@pytest.mark.parametrize("scale", SCALES)
def test_how_the_term_hangs_on_s(scale):
    """As its square, or not at all."""
    values = [derivative(scale, "both", 0.5, s, "layerwise")[1] for s in (0.1, 1.0)]
    assert values[0] / values[1] == pytest.approx(0.01 if "s²" in TABLE[scale]["the term"] else 1.0)
