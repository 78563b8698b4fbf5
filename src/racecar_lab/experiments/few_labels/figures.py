"""Figures of few-labels: accuracy over labels per class, and the table of where racecar helps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, mode, stdev
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from racecar.inspect.style import SMALL, WIDTH, ink_on, new_figure, styled
from racecar_lab.experiments.paper_figures import chosen, look_of
from racecar_lab.report.about import NOT_STD
from racecar_lab.report.groups import Setting, asked, by_setting, by_variant, collect, telling
from racecar_lab.report.run_figures import LOST
from racecar_lab.training.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run


class Gain(NamedTuple):
    """Of RR over Std, over their common seeds in which both nets live; no number if there is none."""

    mean: float
    sd: float
    dead: int = 0
    """Seeds in which RR's net died or Std's did."""


Cells = dict[Setting, dict[str, Gain]]
"""Setting, with RR's λ, → metric → gain."""
KINDS = {"probe": "linear probe", "tune": "fine-tuned"}
LIMIT = 10.0
"""Points at which the colours of the table end, or one net that collapsed would hide all other differences."""
MANY = 4
"""Settings of which pairs of variants have a figure of their own."""
LETTERS, LINE = 26, 0.155
"""Of what stands beside a row, in a line; and inches of such a line."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title; the tables of gains need several settings."""
    figures, cells = {}, gains(runs)
    for kind, what in KINDS.items():
        if sum(bool(counts(one, kind)) for one in cells.values()) > 1:
            figures[f"Where it helps: RR − Std in points (± sd) by labels per class, {what}"] = table_figure(
                cells, kind
            )
    settings = by_setting(chosen(runs), but=("fraction", "longer", "cost"))
    for where, some in settings.items():
        shown = len(settings) <= MANY or len(lines(some)) > 2  # else the table alone shows the pair
        for kind, what in KINDS.items():
            if shown and any(counts(run.metrics, kind) for run in some):
                figures[f"Accuracy on the new task over labels per class, {what}{where}"] = labels_figure(some, kind)
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
def labels_figure(runs: Sequence[Run], kind: str) -> Figure:
    """Mean and standard deviation over the seeds; dashed: the probe on untrained nets. Those that died are counted."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.2))
    groups = lines(runs)
    for name, some in groups.items():
        _band(axis, some, kind, linewidth=1.0, markersize=5, label=name, **look_of(name, groups))
    if kind == "probe":
        grey = {"color": "#888888", "linestyle": "--"}
        _band(axis, groups.get("Std", []), "untrained", label="untrained", **grey)
    ticks = sorted({n for run in runs for n in counts(run.metrics, kind)})
    axis.set(title=KINDS[kind], xscale="log", xlabel="labels per class", ylabel="test accuracy")
    if lost := _lost(groups):
        axis.annotate(f"✕ {lost}", (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=SMALL, color=LOST)
    axis.set_xticks(ticks, [str(n) for n in ticks])
    axis.minorticks_off()
    figure.legend(loc="outside upper center", ncols=3, fontsize=SMALL)
    said = [f"{n} labels: {', '.join(_told(groups, f'{kind}_{n}'))}" for n in dict.fromkeys((ticks[0], ticks[-1]))]
    figure.set_label("; ".join(filter(None, [f"mean test accuracy with {'; with '.join(said)}", lost])))
    return figure


def _told(groups: Mapping[str, Sequence[Run]], metric: str) -> list[str]:
    """As "RR 0.797", for each line."""
    values = {
        name: [run.metrics[metric] for run in some if run.metrics.get(metric) is not None and not run.dead]
        for name, some in groups.items()
    }
    return [f"{name} {mean(some):.3f}" for name, some in values.items() if some]


def _lost(groups: Mapping[str, Sequence[Run]]) -> str:
    """As "RR: 1 of 10 nets died"."""
    dead = {name: sum(run.dead for run in some) for name, some in groups.items()}
    return "; ".join(f"{name}: {count} of {len(groups[name])} nets died" for name, count in dead.items() if count)


def _band(axis: Axes, runs: Sequence[Run], kind: str, **style: Any) -> None:
    runs = [run for run in runs if not run.dead]
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
        (_plain(key), run.seed): run
        for key, run in zip(keys, runs, strict=True)
        if run.variant == "Std" and run.finished
    }
    differences: list[tuple[Setting, tuple[str, float | None]]] = []
    for key, run in zip(keys, runs, strict=True):
        base = std.get((_plain(key), run.seed))
        if run.variant != "RR" or not run.finished or base is None:
            continue
        for metric in (f"{kind}_{n}" for kind in KINDS for n in counts(run.metrics, kind)):
            if (other := base.metrics.get(metric)) is not None:
                one = None if run.dead or base.dead else run.metrics[metric] - other
                differences.append(((*key, ("λ", run.coefficient)), (metric, one)))
    return {
        key: {metric: _gain(values) for metric, values in collect(some).items()}
        for key, some in collect(differences).items()
    }


def _gain(values: Sequence[float | None]) -> Gain:
    alive = [one for one in values if one is not None]
    sd = stdev(alive) if len(alive) > 1 else 0.0
    return Gain(mean(alive) if alive else math.nan, sd, len(values) - len(alive))


def _plain(key: Setting) -> Setting:
    return tuple(one for one in key if one[0] not in NOT_STD)


def names(cells: Cells) -> list[str]:
    """The settings in which cells differ."""
    every = [dict(key) for key in cells]
    return [name for name in (every or [{}])[0] if len({one[name] for one in every}) > 1]


@styled
def table_figure(cells: Cells, kind: str) -> Figure:
    """A heat table of all settings, none left out: a row for each, a column for each number of labels. Where they
    differ in many things, a row says what tells it from most."""
    differ = names(cells)
    most = {name: mode(dict(key)[name] for key in cells) for name in differ} if len(differ) > MANY else {}
    known = {key: cell for key, cell in cells.items() if counts(cell, kind)}
    rows = [
        ", ".join(f"{name} {value}" for name, value in key if name in differ and (name, value) not in most.items())
        or "as most"
        for key in known
    ]
    lost = [max(gain.dead for gain in cell.values()) for cell in known.values()]
    rows = [f"{row}; ✕ {count} dead" if count else row for row, count in zip(rows, lost, strict=True)]
    columns = sorted({n for cell in known.values() for n in counts(cell, kind)})
    values = [[cell.get(f"{kind}_{n}") for n in columns] for cell in known.values()]
    texts = [fill(row, LETTERS) for row in rows]
    heights = [max(2, 1 + text.count("\n")) for text in texts]
    below = fill("most: " + ", ".join(f"{name} {value}" for name, value in most.items()), 56) if most else ""
    height = 0.75 + LINE * (sum(heights) / len(heights) * len(rows) + below.count("\n"))
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, height))
    _heat(axis, values, texts, [str(n) for n in columns])
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("top")
    axis.set_xlabel("labels per class", fontsize=8)
    figure.supxlabel(below, fontsize=SMALL)
    means = sorted(_means(values, rows))
    said = [f"{gain:+.1f} points ({row})".replace("-", "−") for gain, row in (means[:1] + means[-1:])]
    figure.set_label(f"{len(rows)} settings, from {' to '.join(said)}")
    return figure


def _means(values: Sequence[Sequence[Gain | None]], rows: Sequence[str]) -> list[tuple[float, str]]:
    """All gains in points, with the names of their rows."""
    known = [(one, row) for line, row in zip(values, rows, strict=True) for one in line if one is not None]
    return [(100 * one.mean, row) for one, row in known if not math.isnan(one.mean)]


def _heat(axis: Axes, values: Sequence[Sequence[Gain | None]], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Gains in points with their standard deviation; green is better than Std, brown worse, empty: no such runs."""
    points = [[float("nan") if one is None else 100 * one.mean for one in line] for line in values]
    size = min(LIMIT, max((abs(one) for line in points for one in line if one == one), default=0.0)) or 1.0
    image = axis.imshow(points, cmap="BrBG", vmin=-size, vmax=size, aspect="auto")
    for i, line in enumerate(values):
        for j, gain in enumerate(line):
            if gain is not None and math.isnan(gain.mean):
                axis.text(j, i, "dead", ha="center", va="center", fontsize=SMALL, color=LOST)
            elif gain is not None:
                text = f"{100 * gain.mean:+.1f}\n± {100 * gain.sd:.1f}".replace("-", "−")
                colour = ink_on(image.to_rgba(np.array(points[i][j])))
                axis.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=colour)
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=SMALL)
    axis.grid(False)
