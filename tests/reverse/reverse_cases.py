"""A small net with batch norms, and what these see in its reverse pass, by hand."""

import torch
from torch import nn

from tests.by_hand import close, lively, undo_linear


def net(**norm):
    """Linear → norm → tanh → linear → norm → linear, in float64."""
    torch.manual_seed(0)
    parts = nn.Linear(5, 4), nn.BatchNorm1d(4, **norm), nn.Tanh(), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
    model = nn.Sequential(*parts).double()
    return model if norm.get("affine") is False else lively(model)


def batches(count=4, size=8):
    random = torch.Generator().manual_seed(1)
    return [torch.randn(size, 5, generator=random, dtype=torch.float64) + i for i in range(count)]


def standard(norm, x, mean, var):
    x = (x - mean) / (var + norm.eps).sqrt()
    return x if norm.weight is None else x * norm.weight + norm.bias


def back(model, x, layerwise, samples, given=None):
    """What both norms see in the reverse pass, d'_m of all layers: by the statistics of the batch, or by given ones."""
    first, norm1, _, second, norm2, last = model
    d1 = x
    d2 = torch.tanh(norm1(first(d1)))
    d3 = norm2(second(d2))
    d1, d2, d3, d4 = (d[:samples] for d in (d1, d2, d3, last(d3)))

    def again(norm, y, key):
        mean, var = (y.mean(0), y.var(0, unbiased=False)) if given is None else given[key]
        return standard(norm, y, mean, var)

    seen2 = undo_linear(last, d4)
    back3 = again(norm2, seen2, "5:0")
    seen1 = undo_linear(second, d3 if layerwise else back3)
    back2 = torch.tanh(again(norm1, seen1, "3:0"))
    return {"3:0": seen1, "5:0": seen2}, [undo_linear(first, d2 if layerwise else back2), back2, back3], [d1, d2, d3]


def check(rr, kept, calls, tolerance=1e-9):
    found = rr.reverse_statistics.export()
    assert set(found) == {f"{key}.{name}" for key in kept for name in ("mean", "var", "count")}
    for key, (mean, var) in kept.items():
        close(found[f"{key}.mean"], mean, tolerance)
        close(found[f"{key}.var"], var, tolerance)
        assert found[f"{key}.count"] == calls
