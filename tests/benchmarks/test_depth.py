"""Nets of growing depth, and the line through their step times."""

import pytest

from benchmarks.bench import depth


def synthetic(depths, start: float, slopes):
    return [
        {
            "model": name,
            "steps": [
                {"step": step, "median_ms": start + slope * depth.read_name(name)[1]} for step, slope in slopes.items()
            ],
        }
        for name in depth.names(depths)
    ]


def test_slopes():
    models = synthetic([10, 30, 100, 1000], 2.0, {"plain": 0.5, "racecar 1": 1.1})
    fitted = depth.lines(models)
    assert list(fitted) == [(family, step) for family in depth.FAMILIES for step in ("plain", "racecar 1")]
    for (_, step), line in fitted.items():
        assert line.depths.tolist() == [10, 30, 100, 1000]
        assert list(line.curve) == pytest.approx([0.5 if step == "plain" else 1.1, 2.0])
        assert line.worst == pytest.approx(0, abs=1e-9)
    assert [row[3] for row in depth.rows(models)] == ["1.000", "2.200"] * 2


def test_nets():
    for name, family, width, batch in zip(depth.names([3]), depth.FAMILIES, (128, 16), (128, 32), strict=True):
        model, x = depth.open_net(name)
        weights = [p for p in model.parameters() if p.dim() > 1]
        assert (len(weights), len(weights[1]), len(x)) == (4, width, batch)
        assert model(x).shape == (batch, depth.CLASSES)
        assert depth.read_name(name) == (family, 3)


def test_figure():
    figure = depth.figure(synthetic([10, 100], 2.0, {"plain": 0.5, "racecar 1": 1.1}))
    assert [axis.get_title() for axis in figure.axes] == ["linear", "conv"]
    points = figure.axes[0].lines[0]
    assert list(points.get_xdata()) == [10, 100]
    assert list(points.get_ydata()) == [7.0, 52.0]
