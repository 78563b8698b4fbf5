"""Nets that grow, and the line through their step times."""

import pytest

from benchmarks.bench import growth


def synthetic(grow: str, values, start: float, slopes):
    power = 2 if grow == "width" else 1
    return [
        {
            "model": name,
            "steps": [
                {"step": step, "median_ms": start + slope * getattr(growth.read_size(name), grow) ** power}
                for step, slope in slopes.items()
            ],
        }
        for name in growth.names(grow, values)
    ]


@pytest.mark.parametrize("grow", growth.GROWS)
def test_slopes(grow):
    models = synthetic(grow, [10, 30, 100, 1000], 2.0, {"plain": 0.5, "racecar 1": 1.1})
    for line in growth.lines(models, grow):
        assert line.values == [10, 30, 100, 1000]
        assert line.fit == pytest.approx((2.0, 0.5 if line.step == "plain" else 1.1))
        assert line.worst == pytest.approx(0, abs=1e-9)
    assert [row[3] for row in growth.rows(models, grow)] == ["1.000", "2.200"] * 2


def test_nets_that_grow():
    for family, depth, width, batch in [("linear", 3, 5, 7), ("conv", 2, 4, 6)]:
        name = f"{family} depth={depth} width={width} batch={batch}"
        model, x = growth.open_size(name)
        weights = [p for p in model.parameters() if p.dim() > 1]
        assert (len(weights), len(weights[1]), len(x)) == (depth + 1, width, batch)
        assert model(x).shape == (batch, growth.CLASSES)
        assert str(growth.read_size(name)) == name


def test_figure():
    models = synthetic("depth", [10, 100], 2.0, {"plain": 0.5, "racecar 1": 1.1})
    figure = growth.figure(models, "depth")
    assert [axis.get_title() for axis in figure.axes] == ["linear", "conv"]
    points = figure.axes[0].lines[0]
    assert list(points.get_xdata()) == [10, 100]
    assert list(points.get_ydata()) == [7.0, 52.0]
