"""Figures of few-labels: accuracy over labels per class, and a heat table of RR's gain over Std in every setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, mode, stdev
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from racecar.inspect.style import SMALL, WIDTH, ink_on, new_figure, styled
from racecar_lab.experiments.paper_figures import chosen, look_of
from racecar_lab.report.costs import REGULARISER_FIELDS
from racecar_lab.report.groups import by_setting, by_variant, collect, config_with_tuned
from racecar_lab.report.run_figures import BROKEN as DEAD_COLOUR
from racecar_lab.report.settings import Setting, differing
from racecar_lab.training.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run


class Gain(NamedTuple):
    """RR's gain over Std in one metric: mean and standard deviation of the differences over the seeds in which both
    nets live; the mean is NaN if there is no such seed."""

    mean: float
    sd: float
    dead: int = 0
    """Number of seeds in which the net of RR or that of Std died."""


Cells = dict[Setting, dict[str, Gain]]
"""Setting, including RR's λ → name of a metric → RR's gain over Std."""
KINDS = {"probe": "linear probe", "tune": "fine-tuned"}
"""First part of the name of an accuracy, as in "probe_10" → the way in which the net learned the new task, in words."""
LIMIT = 10.0
"""Gain in points at which the colours of the heat table end. Without a limit, one collapsed net would hide all other
differences."""
MANY = 4
"""Number above which there are too many settings or fields to show all: with more settings, only those with three lines
or more have a figure of their own; if settings differ in more fields, a row of the heat table names unusual values
alone."""
LETTERS, LINE = 26, 0.155
"""Heat table: largest number of letters in a line of a row's name, and height of such a line in inches."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure. The heat tables of gains are made only if there are several settings."""
    figures, cells = {}, gains(runs)
    for kind, words in KINDS.items():
        if sum(bool(label_counts(metrics, kind)) for metrics in cells.values()) > 1:
            title = f"Where it helps: RR − Std in points (± sd) by labels per class, {words}"
            figures[title] = table_figure(cells, kind)
    settings = by_setting(chosen(runs), but=("fraction", "longer", "cost"))
    for where, members in settings.items():
        if len(settings) > MANY and len(lines(members)) < 3:
            continue  # the table shows the pair
        for kind, words in KINDS.items():
            if any(label_counts(run.metrics, kind) for run in members):
                title = f"Accuracy on the new task over labels per class, {words}{where}"
                figures[title] = labels_figure(members, kind)
    return figures


def label_counts(metrics: Mapping[str, Any], kind: str) -> list[int]:
    """Numbers of labels per class for which there are metrics of this kind, sorted: 2 and 10 if ``kind`` is "probe" and
    there are "probe_2" and "probe_10"."""
    return sorted(int(name.removeprefix(f"{kind}_")) for name in metrics if name.startswith(f"{kind}_"))


def lines(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Name of a line in the figure of accuracies → its runs. The name is the variant, with " longer" for the longer
    training, and with the reverse pass's share of the batch if that is not the smallest one."""
    smallest = min((run.config["fraction"] for run in runs), default=1.0)

    def suffix_of(run: Run) -> str:
        fraction = run.config["fraction"]
        return " longer" if run.config.get("longer") else "" if fraction == smallest else f" fraction {fraction:g}"

    groups = collect((suffix_of(run), run) for run in runs)
    named = {
        name + suffix: members for suffix in sorted(groups) for name, members in by_variant(groups[suffix]).items()
    }
    order = list(VARIANTS)
    return {name: named[name] for name in sorted(named, key=lambda name: order.index(name.split()[0]))}


@styled
def labels_figure(runs: Sequence[Run], kind: str) -> Figure:
    """Draw accuracy on the new task over labels per class, a line for each variant: the mean over the seeds, in a band
    of one standard deviation; dashed: untrained nets. Dead nets are left out, and counted. ``kind`` is a key of
    ``KINDS``: linear probe or fine-tuning."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.2))
    groups = lines(runs)
    for name, members in groups.items():
        _band(axis, members, kind, linewidth=1.0, markersize=5, label=name, **look_of(name, groups))
    if kind == "probe":
        grey = {"color": "#888888", "linestyle": "--"}
        _band(axis, groups.get("Std", []), "untrained", label="untrained", **grey)
    ticks = sorted({n for run in runs for n in label_counts(run.metrics, kind)})
    axis.set(title=KINDS[kind], xscale="log", xlabel="labels per class", ylabel="test accuracy")
    if dead := _dead_nets(groups):
        axis.annotate(
            f"✕ {dead}", (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=SMALL, color=DEAD_COLOUR
        )
    axis.set_xticks(ticks, [str(n) for n in ticks])
    axis.minorticks_off()
    figure.legend(loc="outside upper center", ncols=3, fontsize=SMALL)
    parts = [f"{n} labels: {', '.join(_means(groups, f'{kind}_{n}'))}" for n in dict.fromkeys((ticks[0], ticks[-1]))]
    figure.set_label("; ".join(filter(None, [f"mean test accuracy with {'; with '.join(parts)}", dead])))
    return figure


def _means(groups: Mapping[str, Sequence[Run]], metric: str) -> list[str]:
    """For each line of the figure its name with the mean of a metric over living nets, as "RR 0.797"; lines without any
    are left out."""
    values = {
        name: [run.metrics[metric] for run in runs if run.metrics.get(metric) is not None and not run.dead]
        for name, runs in groups.items()
    }
    return [f"{name} {mean(numbers):.3f}" for name, numbers in values.items() if numbers]


def _dead_nets(groups: Mapping[str, Sequence[Run]]) -> str:
    """Text with the number of dead nets for each line of the figure that has any, as "RR: 1 of 10 nets died"; may be
    empty."""
    dead = {name: sum(run.dead for run in runs) for name, runs in groups.items()}
    return "; ".join(f"{name}: {count} of {len(groups[name])} nets died" for name, count in dead.items() if count)


def _band(axis: Axes, runs: Sequence[Run], kind: str, **style: Any) -> None:
    """Draw one line over labels per class: the mean accuracy over the seeds, in a band of one standard deviation to
    either side. Dead nets are left out."""
    values: dict[int, list[float]] = collect(
        (n, run.metrics[f"{kind}_{n}"])
        for run in runs
        if not run.dead
        for n in label_counts(run.metrics, kind)
        if run.metrics[f"{kind}_{n}"] is not None
    )
    if not values:
        return
    counts = sorted(values)
    means = [mean(values[n]) for n in counts]
    sds = [stdev(values[n]) if len(values[n]) > 1 else 0.0 for n in counts]
    axis.plot(counts, means, **style)
    low, high = ([middle + sign * sd for middle, sd in zip(means, sds, strict=True)] for sign in (-1, 1))
    axis.fill_between(counts, low, high, color=style["color"], alpha=0.15, linewidth=0)


def gains(runs: Sequence[Run]) -> Cells:
    """RR's gains over Std in every setting that both were run with, from the seeds that both have."""
    keys = differing([config_with_tuned(run) for run in runs])
    std = {
        (_std_key(key), run.seed): run
        for key, run in zip(keys, runs, strict=True)
        if run.variant == "Std" and run.finished
    }
    differences: list[tuple[Setting, tuple[str, float | None]]] = []
    for key, run in zip(keys, runs, strict=True):
        base = std.get((_std_key(key), run.seed))
        if run.variant != "RR" or not run.finished or base is None:
            continue
        for metric in (f"{kind}_{n}" for kind in KINDS for n in label_counts(run.metrics, kind)):
            if (other := base.metrics.get(metric)) is not None:
                difference = None if run.dead or base.dead else run.metrics[metric] - other
                differences.append(((*key, ("λ", run.weight)), (metric, difference)))
    return {
        key: {metric: _gain(values) for metric, values in collect(pairs).items()}
        for key, pairs in collect(differences).items()
    }


def _gain(values: Sequence[float | None]) -> Gain:
    """RR's gain over Std from the differences of all seeds; a difference is None if one of the two nets died."""
    alive = [value for value in values if value is not None]
    sd = stdev(alive) if len(alive) > 1 else 0.0
    return Gain(mean(alive) if alive else math.nan, sd, len(values) - len(alive))


def _std_key(key: Setting) -> Setting:
    """A setting without the fields of the regulariser, which make no difference to Std, so that Std's runs are found by
    it."""
    return tuple((name, value) for name, value in key if name not in REGULARISER_FIELDS)


def names(cells: Cells) -> list[str]:
    """Names of the fields whose values differ between the settings."""
    settings = [dict(key) for key in cells]
    return [name for name in (settings or [{}])[0] if len({setting[name] for setting in settings}) > 1]


@styled
def table_figure(cells: Cells, kind: str) -> Figure:
    """Draw a heat table of RR's gain over Std, with a row for each setting and a column for each number of labels per
    class. If settings differ in more than ``MANY`` fields, a row names only the values that are not the most frequent
    ones. ``kind`` is a key of ``KINDS``: linear probe or fine-tuning."""
    differ = names(cells)
    frequent = {name: mode(dict(key)[name] for key in cells) for name in differ} if len(differ) > MANY else {}
    known = {key: cell for key, cell in cells.items() if label_counts(cell, kind)}
    rows = [
        ", ".join(f"{name} {value}" for name, value in key if name in differ and (name, value) not in frequent.items())
        or "as most"
        for key in known
    ]
    dead = [max(gain.dead for gain in cell.values()) for cell in known.values()]
    rows = [f"{row}; ✕ {count} dead" if count else row for row, count in zip(rows, dead, strict=True)]
    columns = sorted({n for cell in known.values() for n in label_counts(cell, kind)})
    values = [[cell.get(f"{kind}_{n}") for n in columns] for cell in known.values()]
    texts = [fill(row, LETTERS) for row in rows]
    heights = [max(2, 1 + text.count("\n")) for text in texts]
    below = fill("most: " + ", ".join(f"{name} {value}" for name, value in frequent.items()), 56) if frequent else ""
    height = 0.75 + LINE * (sum(heights) / len(heights) * len(rows) + below.count("\n"))
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, height))
    _heat(axis, values, texts, [str(n) for n in columns])
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("top")
    axis.set_xlabel("labels per class", fontsize=8)
    figure.supxlabel(below, fontsize=SMALL)
    points = sorted(_named_gains(values, rows))
    ends = [f"{gain:+.1f} points ({row})".replace("-", "−") for gain, row in (points[:1] + points[-1:])]
    figure.set_label(f"{len(rows)} settings, from {' to '.join(ends)}")
    return figure


def _named_gains(values: Sequence[Sequence[Gain | None]], rows: Sequence[str]) -> list[tuple[float, str]]:
    """Mean gains of RR over Std in points, each with the name of its row of the heat table; cells without a number are
    left out."""
    known = [(gain, row) for line, row in zip(values, rows, strict=True) for gain in line if gain is not None]
    return [(100 * gain.mean, row) for gain, row in known if not math.isnan(gain.mean)]


def _heat(axis: Axes, values: Sequence[Sequence[Gain | None]], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Draw the cells of the heat table: mean gains of RR over Std in points with their standard deviation. Green is
    better than Std, brown worse; empty: nothing was run."""
    points = [[math.nan if gain is None else 100 * gain.mean for gain in line] for line in values]
    size = min(LIMIT, max((abs(point) for line in points for point in line if point == point), default=0.0)) or 1.0
    image = axis.imshow(points, cmap="BrBG", vmin=-size, vmax=size, aspect="auto")
    for i, line in enumerate(values):
        for j, gain in enumerate(line):
            if gain is not None and math.isnan(gain.mean):
                axis.text(j, i, "dead", ha="center", va="center", fontsize=SMALL, color=DEAD_COLOUR)
            elif gain is not None:
                text = f"{100 * gain.mean:+.1f}\n± {100 * gain.sd:.1f}".replace("-", "−")
                colour = ink_on(image.to_rgba(np.array(points[i][j])))
                axis.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=colour)
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=SMALL)
    axis.grid(False)
