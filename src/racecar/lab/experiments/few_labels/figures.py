"""Figures of few-labels: accuracy over labels per class, and the map of where racecar helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import mean, mode, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from racecar.inspect.style import new_figure, styled
from racecar.lab.experiments.paper_figures import chosen, look_of
from racecar.lab.report.groups import Setting, asked, by_setting, by_variant, collect, telling
from racecar.lab.training.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar.lab.running.run import Run


class Gain(NamedTuple):
    """Of RR over Std, over their common seeds."""

    mean: float
    sd: float


Cells = dict[Setting, dict[str, Gain]]
"""Setting, with RR's λ, → metric → gain."""
KINDS = {"probe": "linear probe", "tune": "fine-tuned"}
LIMIT = 10.0
"""Points at which the colours of a map end, or one net that collapsed would hide all other differences."""
MANY = 4
"""Settings of which pairs of variants have a figure of their own."""
OURS = ("fraction", "every", "layers", "decay", "scale", "gradient", "reduction", "strength")
"""Settings that say nothing to Std: RR with any of them stands beside the same Std."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title; the maps need several settings."""
    figures = {}
    settings = by_setting(chosen(runs), but=("fraction", "longer"))
    for where, some in settings.items():
        shown = len(settings) <= MANY or len(lines(some)) > 2  # else the map alone shows the pair
        if shown and any(counts(run.metrics, kind) for run in some for kind in KINDS):
            figures[f"Accuracy on the new task over labels per class{where}"] = labels_figure(some)
    cells = gains(runs)
    if len(cells) > 1:
        figures["Where it helps: RR − Std in points, every setting"] = table_figure(cells)
    for a, b in combinations(names(cells), 2):
        for kind in KINDS:
            for metric in sorted({f"{kind}_{n}" for one in cells.values() for n in counts(one, kind)[:1]}):
                if grid := table(cells, a, b, metric):
                    title = f"RR − Std in points, {metric.replace('_', ' at ')} labels: {a} and {b}"
                    figures[title] = map_figure(grid, a, b)
    return figures


def counts(metrics: Mapping[str, Any], kind: str) -> list[int]:
    """The labels per class at which something was measured."""
    return sorted(int(name.removeprefix(f"{kind}_")) for name in metrics if name.startswith(f"{kind}_"))


def lines(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of each variant, with the longer training of Std and larger slices of the batch beside the usual ones."""
    least = min((run.config["fraction"] for run in runs), default=1.0)

    def kind_of(run: Run) -> str:
        slice_ = run.config["fraction"]
        return " longer" if run.config.get("longer") else "" if slice_ == least else f" fraction {slice_:g}"

    groups = collect((kind_of(run), run) for run in runs)
    found = [(name + kind, some) for kind in sorted(groups) for name, some in by_variant(groups[kind]).items()]
    order = list(VARIANTS)
    return dict(sorted(found, key=lambda one: order.index(one[0].split()[0])))


@styled
def labels_figure(runs: Sequence[Run]) -> Figure:
    """Mean and standard deviation over the seeds, of probe and fine-tuning; dashed: the probe on untrained nets."""
    kinds = [kind for kind in KINDS if any(counts(run.metrics, kind) for run in runs)]
    figure, (axes,) = new_figure(1, len(kinds), (3.6 * len(kinds), 3.2))
    groups = lines(runs)
    for axis, kind in zip(axes, kinds, strict=True):
        for name, some in groups.items():
            style = look_of(name, groups)
            _band(axis, some, kind, linewidth=1.0, markersize=5, label=name, **style)
        if kind == "probe":
            grey = {"color": "#888888", "linestyle": "--"}
            _band(axis, groups.get("Std", []), "untrained", label="untrained", **grey)
        ticks = sorted({n for run in runs for n in counts(run.metrics, kind)})
        axis.set(title=KINDS[kind], xscale="log", xlabel="labels per class", ylabel="test accuracy")
        axis.set_xticks(ticks, [str(n) for n in ticks])
        axis.minorticks_off()
    axes[0].legend(fontsize=7, loc="lower right")
    return figure


def _band(axis: Axes, runs: Sequence[Run], kind: str, **style: Any) -> None:
    where = sorted({n for run in runs for n in counts(run.metrics, kind)})
    if not where:
        return
    values = [[run.metrics[f"{kind}_{n}"] for run in runs if run.metrics.get(f"{kind}_{n}") is not None] for n in where]
    where = [n for n, some in zip(where, values, strict=True) if some]
    values = [some for some in values if some]
    middle, sd = [mean(some) for some in values], [stdev(some) if len(some) > 1 else 0.0 for some in values]
    axis.plot(where, middle, **style)
    low, high = ([m + sign * s for m, s in zip(middle, sd, strict=True)] for sign in (-1, 1))
    axis.fill_between(where, low, high, color=style["color"], alpha=0.15, linewidth=0)


def gains(runs: Sequence[Run]) -> Cells:
    """Of every setting that has both, the mean difference over their common seeds."""
    keys = telling([asked(run) for run in runs])
    std = {
        (_plain(key), run.seed): run.metrics
        for key, run in zip(keys, runs, strict=True)
        if run.variant == "Std" and run.finished
    }
    differences: list[tuple[Setting, tuple[str, float]]] = []
    for key, run in zip(keys, runs, strict=True):
        base = std.get((_plain(key), run.seed))
        if run.variant != "RR" or not run.finished or base is None:
            continue
        for metric in (f"{kind}_{n}" for kind in KINDS for n in counts(run.metrics, kind)):
            if (other := base.get(metric)) is not None:
                differences.append(((*key, ("λ", run.coefficient)), (metric, run.metrics[metric] - other)))
    return {
        key: {metric: Gain(mean(v), stdev(v) if len(v) > 1 else 0.0) for metric, v in collect(some).items()}
        for key, some in collect(differences).items()
    }


def _plain(key: Setting) -> Setting:
    return tuple(one for one in key if one[0] not in OURS)


def names(cells: Cells) -> list[str]:
    """The settings in which cells differ."""
    every = [dict(key) for key in cells]
    return [name for name in (every or [{}])[0] if len({one[name] for one in every}) > 1]


def table(cells: Cells, a: str, b: str, metric: str) -> dict[tuple[Any, Any], Gain]:
    """Value of a, value of b → gain, where at least four cells differ in these two settings alone and are more than one
    row and one column; else nothing. With more than two settings the other ones are as in the cell that has most such
    neighbours."""
    grids: dict[tuple[tuple[str, Any], ...], dict[tuple[Any, Any], Gain]] = {}
    for key, cell in cells.items():
        values = dict(key)
        rest = tuple((name, value) for name, value in key if name not in (a, b))
        if metric in cell:
            grids.setdefault(rest, {})[values[a], values[b]] = cell[metric]
    best = max(grids.values(), key=len, default={})
    rows, columns = (len({where[i] for where in best}) for i in range(2))
    return best if min(rows, columns) > 1 and len(best) > rows + columns - 1 else {}


@styled
def map_figure(grid: Mapping[tuple[Any, Any], Gain], a: str, b: str) -> Figure:
    """A heat table of two settings."""
    rows, columns = (list(dict.fromkeys(where[i] for where in grid)) for i in range(2))
    values = [[grid.get((row, column)) for column in columns] for row in rows]
    figure, ((axis,),) = new_figure(1, 1, (1.6 + 0.9 * len(columns), 1.2 + 0.5 * len(rows)))
    _heat(axis, values, [str(row) for row in rows], [str(column) for column in columns])
    axis.set(xlabel=b, ylabel=a)
    return figure


@styled
def table_figure(cells: Cells) -> Figure:
    """A heat table of all settings, none left out: a row for each, a column for each metric. Where they differ in many
    things, a row says what tells it from most."""
    differ = names(cells)
    most = {name: mode(dict(key)[name] for key in cells) for name in differ} if len(differ) > MANY else {}
    rows = [
        ", ".join(f"{name} {value}" for name, value in key if name in differ and (name, value) not in most.items())
        or "as most"
        for key in cells
    ]
    metrics = [f"{kind}_{n}" for kind in KINDS for n in sorted({n for c in cells.values() for n in counts(c, kind)})]
    values = [[cell.get(metric) for metric in metrics] for cell in cells.values()]
    width = 1.0 + 0.06 * max(map(len, rows)) + 0.75 * len(metrics)
    figure, ((axis,),) = new_figure(1, 1, (width, 1.0 + 0.32 * len(rows)))
    _heat(axis, values, rows, [metric.replace("_", " ") for metric in metrics])
    if most:
        axis.set_xlabel("most: " + ", ".join(f"{name} {value}" for name, value in most.items()), fontsize=7)
    return figure


def _heat(axis: Axes, values: Sequence[Sequence[Gain | None]], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Gains in points with their standard deviation; green is better than Std, brown worse, empty: no such runs."""
    points = [[float("nan") if one is None else 100 * one.mean for one in line] for line in values]
    size = min(LIMIT, max((abs(one) for line in points for one in line if one == one), default=0.0)) or 1.0
    axis.imshow(points, cmap="BrBG", vmin=-size, vmax=size, aspect="auto")
    for i, line in enumerate(values):
        for j, gain in enumerate(line):
            if gain is not None:
                text = f"{100 * gain.mean:+.1f}\n± {100 * gain.sd:.1f}"
                colour = "white" if abs(points[i][j]) > 0.6 * size else "black"
                axis.text(j, i, text, ha="center", va="center", fontsize=6.5, color=colour)
    axis.set_xticks(range(len(columns)), columns, fontsize=7)
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    axis.grid(False)
