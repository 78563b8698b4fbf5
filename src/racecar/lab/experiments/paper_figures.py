"""Figures of the experiments, drawn from records and their arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from racecar.inspect.style import look, new_figure, styled
from racecar.lab.report.groups import by_variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar.lab.running.run import Run


DASHES = ("-", "--", ":", "-.")
"""Lines of one variant with several coefficients."""


def chosen(runs: Sequence[Run]) -> list[Run]:
    """Without the runs of a sweep, where a search has chosen the coefficient."""
    return [run for run in runs if run.record.get("tuned", {}).get("coefficient", run.coefficient) == run.coefficient]


def having(runs: Sequence[Run], array: str) -> list[Run]:
    """Those that have kept it."""
    return [run for run in runs if array in run.arrays]


def look_of(name: str, names: Iterable[str]) -> dict[str, Any]:
    """Of a name that ``by_variant`` gives: a variant's colour and marker, and a line for each of its coefficients."""
    variant = name.split()[0]
    alike = [one for one in names if one.split()[0] == variant]
    return {**look(variant), "linestyle": DASHES[alike.index(name) % len(DASHES)]}


@styled
def vectors_figure(runs: Sequence[Run], what: str, seeds: int = 3, count: int = 4) -> Figure:
    """A row for each seed: the features, and for each variant the singular vectors that carry most of the data."""
    groups = by_variant(runs)
    seen = sorted({run.seed for run in runs})[:seeds]
    columns = 2 + count * len(groups)
    figure, axes = new_figure(len(seen), columns, (0.8 * columns + 0.3, 0.95 * len(seen) + 0.5))
    for line, seed in zip(axes, seen, strict=True):
        for axis in line:
            axis.set_axis_off()
        line[0].set_title(what if seed == seen[0] else "", loc="left", fontsize=8)
        first = next(run for run in runs if run.seed == seed)
        for axis, picture in zip(line[:2], first.arrays["features"], strict=False):
            _show(axis, picture[0], signed=False)
        for j, (name, some) in enumerate(groups.items()):
            run = next((run for run in some if run.seed == seed), None)
            if run is None:
                continue
            start = 2 + count * j
            for i, vector in enumerate(run.arrays["vectors"][:count]):
                axis = line[start + i]
                _show(axis, vector[0] * vector[0].sum().sign(), signed=True)
                axis.set_title(f"{float(run.arrays['shares'][i]):.0%}", fontsize=6, pad=1.5)
            if seed == seen[0]:
                # Above the share that stands over the picture.
                line[start].set_title(f"{name}\n", fontsize=8, loc="left", color=look(run.variant)["color"])
    return figure


@styled
def strip_figure(runs: Sequence[Run]) -> Figure:
    """The first picture as the reverse pass rebuilds it, from the start of training to its end; of the first seed that
    most variants have."""
    seeds = sorted(run.seed for run in runs)
    seed = max(seeds, key=seeds.count)
    groups = {name: run for name, some in by_variant(runs).items() for run in some if run.seed == seed}
    looks = max(len(run.arrays["rebuilt"]) for run in groups.values())
    figure, axes = new_figure(len(groups), looks, (0.9 * looks + 0.6, 0.95 * len(groups) + 0.4))
    for line, (name, run) in zip(axes, groups.items(), strict=True):
        for axis, pictures in zip(line, run.arrays["rebuilt"], strict=False):
            _show(axis, pictures[0, 0], signed=False, limits=(0.0, 255.0))
        line[0].set_title(name, fontsize=8, loc="left", color=look(run.variant)["color"])
    return figure


@styled
def rebuilt_figure(runs: Sequence[Run]) -> Figure:
    """Pictures d1, and a row for each variant, what the reverse pass makes of them; of the seed that most have."""
    seeds = sorted(run.seed for run in runs)
    seed = max(seeds, key=seeds.count)
    groups = {name: run for name, some in by_variant(runs).items() for run in some if run.seed == seed}
    truth = next(run.arrays["d1"] for run in groups.values() if "d1" in run.arrays)
    rows = [("d1", "black", truth)]
    rows += [(name, look(run.variant)["color"], run.arrays["rebuilt"]) for name, run in groups.items()]
    figure, axes = new_figure(len(rows), len(truth), (0.7 * len(truth) + 0.4, 0.9 * len(rows) + 0.3))
    for line, (name, colour, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            _show(axis, picture[0], signed=False, limits=(0.0, 1.0))
        line[0].set_title(name, fontsize=8, loc="left", color=colour)
    return figure


@styled
def planes_figure(runs: Sequence[Run]) -> Figure:
    """I(X;D) and I(D;Y), mean over the seeds, of every layer: one panel for each stage."""
    stages = [stage for stage in ("A", "AA", "AB") if any(run.stage == stage for run in runs)]
    figure, (axes,) = new_figure(1, len(stages), (3.4 * len(stages), 3.2))
    for axis, stage in zip(axes, stages, strict=True):
        groups = by_variant([run for run in runs if run.stage == stage])
        for name, some in groups.items():
            style = look_of(name, groups)
            points = torch.tensor([[(row["i_xd"], row["i_dy"]) for row in run.tables["plane"]] for run in some])
            x, y = points.mean(0).unbind(1)
            axis.plot(x.tolist(), y.tolist(), linewidth=0.8, markersize=6, label=name, **style)
            names = [row["name"] for row in some[0].tables["plane"]]
            for text, place in zip(names, zip(x.tolist(), y.tolist(), strict=True), strict=True):
                axis.annotate(text, place, (3, 3), textcoords="offset points", fontsize=5.5, color=style["color"])
        axis.set(title=stage, xlabel="I(X;D) in bits", ylabel="I(D;Y) in bits", xlim=(-0.3, 12.6), ylim=(-0.03, 1.08))
    axes[0].legend(fontsize=7, loc="lower right")
    return figure


@styled
def accuracy_figure(runs: Sequence[Run]) -> Figure:
    """Test accuracy of every stage and variant, each seed a point; the band is Std trained on B from scratch."""
    bars = len({(run.stage, run.variant, run.coefficient) for run in runs if run.stage != "B"})
    figure, ((axis,),) = new_figure(1, 1, (max(6.4, 0.36 * bars), 3.2))
    scratch = [run.metrics["test_accuracy"] for run in runs if run.stage == "B" and run.finished]
    if scratch:
        low, high = min(scratch), max(scratch)
        axis.axhspan(low, high, color="#BBBBBB", alpha=0.4, linewidth=0)
        axis.axhline(mean(scratch), color="#666666", linestyle="--", linewidth=0.8)
    counts = [run.metrics["bit_count"] for run in runs if run.finished and "bit_count" in run.metrics]
    if counts:
        axis.axhline(mean(counts), color="#AAAAAA", linestyle=":", linewidth=1)
        axis.annotate(
            "threshold on the number of ones", (0, mean(counts)), (2, -9), textcoords="offset points", fontsize=6.5
        )
    position, ticks = 0, []
    for stage in ("A", "AA", "AB"):
        groups = by_variant([run for run in runs if run.stage == stage])
        for name, some in groups.items():
            values = [run.metrics["test_accuracy"] for run in some]
            style = look(some[0].variant)
            spread = [position + 0.5 * (i / max(1, len(values) - 1) - 0.5) for i in range(len(values))]
            axis.plot(spread, values, linestyle="none", markersize=4, alpha=0.6, **style)
            sd = stdev(values) if len(values) > 1 else 0.0
            axis.errorbar([position], [mean(values)], [sd], color="black", capsize=3, linewidth=1)
            ticks.append((position, f"{name}\n{stage}"))
            position += 1
        position += 1
    axis.set_xticks([place for place, _ in ticks], [text for _, text in ticks], fontsize=7)
    axis.set(ylabel="test accuracy")
    return figure


@styled
def sweep_figure(runs: Sequence[Run]) -> Figure:
    """Mean I(X;D) of the hidden layers over the number of bins, stage A: what moves with the bins is not the net's."""
    figure, ((axis,),) = new_figure(1, 1, (4.2, 3.0))
    groups = by_variant([run for run in runs if run.stage == "A"])
    for name, some in groups.items():
        bins = [int(count) for count in some[0].tables["sweep"]]
        values = [mean(mean(row[0] for row in run.tables["sweep"][str(count)][1:-1]) for run in some) for count in bins]
        axis.plot(bins, values, linewidth=0.9, markersize=5, label=name, **look_of(name, groups))
    axis.set(xscale="log", xlabel="bins", ylabel="mean I(X;D) of d2 … d6 in bits")
    axis.legend(fontsize=7)
    return figure


def _show(axis: Axes, picture: Tensor, signed: bool, limits: tuple[float, float] | None = None) -> None:
    size = float(picture.abs().max()) or 1.0
    low, high = limits or ((-size, size) if signed else (0.0, size))
    axis.imshow(picture.numpy(), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    axis.set_axis_off()
