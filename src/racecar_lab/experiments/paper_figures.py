"""Charts that several experiments share, drawn from their runs, and helpers to choose and style runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.report.groups import by_setting, by_variant, collect, gather
from racecar_lab.report.run_figures import runs_figure
from racecar_lab.training.loss_config import LOSS, PAPER, loss_name
from racecar_lab.training.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run


DASHES = ("-", "--", ":", "-.")
"""Line styles by which the runs of one variant with different λ are told apart."""
STAGES = ("A", "AA", "AB")
"""Stages that figures show: A with the regulariser, and AA and AB, which continue from it without."""


def information_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure of the experiment information: accuracies, information planes of every stage, and the effect of
    the number of bins."""
    figures = {}
    for setting, members in by_setting(chosen(runs)).items():
        planes = collect((run.stage, run) for run in members if "plane" in run.tables)
        if measured := [run for run in members if "test_accuracy" in run.metrics]:
            figures[f"{accuracy_title(measured)}{setting}"] = accuracy_figure(measured)
        for stage in [stage for stage in STAGES if stage in planes]:
            figures[f"Information plane of every layer, stage {stage}{setting}"] = plane_figure(planes[stage])
        if runs_of_a := planes.get("A"):
            figures[f"How far I(X;D) depends on the bins{setting}"] = sweep_figure(runs_of_a)
    return figures


def chosen(runs: Sequence[Run]) -> list[Run]:
    """Leave out the runs of a sweep over λ: return those with the λ that a search chose, and those for which none was
    searched."""
    return [run for run in runs if run.record.get("tuned", {}).get("weight", run.weight) == run.weight]


def rows_of(runs: Sequence[Run], kinds: Mapping[str, tuple[str, object]]) -> dict[str, list[Run]]:
    """Row's name → runs, as "RR", "RR, the paper's loss" or "Std, longer". Plain variants come first, in our order.

    Args:
        kinds: suffix of a name → the field of the configuration and the value that add it.
    """

    def suffixes(run: Run) -> tuple[bool, ...]:
        loss = {name: run.config[name] for name in LOSS}
        paper = VARIANTS[run.variant].kind == "reverse" and loss == PAPER
        return *(run.config[field] == value for field, value in kinds.values()), paper

    words = *kinds, f"{loss_name(PAPER)} loss"
    rows: dict[str, list[Run]] = {}
    for present, group in sorted(collect((suffixes(run), run) for run in runs).items()):
        suffix = "".join(f", {word}" for word, added in zip(words, present, strict=True) if added)
        rows |= {f"{name}{suffix}": members for name, members in by_variant(group).items()}
    return rows


def having(runs: Sequence[Run], array: str) -> list[Run]:
    """The runs whose records have the array with this name."""
    return [run for run in runs if array in run.arrays]


def look_of(name: str, names: Iterable[str]) -> dict[str, Any]:
    """Matplotlib style of a line: colour and marker of its variant, and a line style by which its λ is told from
    others. ``name`` is one of ``names``, all as ``by_variant`` makes them."""
    variant = name.split()[0]
    alike = [other for other in names if other.split()[0] == variant]
    return {**look(variant), "linestyle": DASHES[alike.index(name) % len(DASHES)]}


@styled
def plane_figure(runs: Sequence[Run]) -> Figure:
    """Draw the information plane after one stage: I(X;D) and I(D;Y) of every layer, mean over seeds. The first
    variant's layers have labels."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.6))
    groups, ranges = by_variant(runs), []
    for name, members in groups.items():
        style = look_of(name, groups)
        points = torch.tensor([[(row["i_xd"], row["i_dy"]) for row in run.tables["plane"]] for run in members])
        x, y = points.mean(0).unbind(1)
        axis.plot(x.tolist(), y.tolist(), linewidth=0.8, markersize=6, label=name, **style)
        ranges.append(f"{name} {float(x.min()):.1f} to {float(x.max()):.1f}")
        if len(ranges) == 1:
            names = [row["name"] for row in members[0].tables["plane"]]
            for text, place in zip(names, zip(x.tolist(), y.tolist(), strict=True), strict=True):
                axis.annotate(
                    text, place, (0, 5), textcoords="offset points", fontsize=SMALL, color=style["color"], ha="center"
                )
    axis.set(xlabel="I(X;D) in bits", ylabel="I(D;Y) in bits", xlim=(-0.3, 12.6), ylim=(-0.03, 1.12))
    figure.legend(loc="outside upper center", ncols=min(4, len(groups)), fontsize=SMALL)
    figure.set_label(f"bits about the input, from the poorest layer to the richest: {', '.join(ranges)}")
    return figure


def accuracy_figure(runs: Sequence[Run]) -> Figure:
    """Draw test accuracy for every stage and variant, a dot for each seed. Grey: Std trained on task B from scratch,
    all seeds and their mean. Dotted: the rule that only counts the ones of an input."""
    groups = gather(runs)
    stages = [stage for stage in STAGES if any(group.stage == stage for group in groups)]
    figure = runs_figure(groups, [(stage, "test_accuracy") for stage in stages or ["B"]], {})
    scratch, counts = scratch_and_counts(runs)
    text = str(figure.get_label())
    low, high = figure.axes[0].get_xlim()
    for axis in figure.axes:
        axis.set_xlim(min([low, *scratch, *counts]), max([high, *scratch, *counts]))
        if scratch and stages:
            axis.axvspan(min(scratch), max(scratch), color="#BBBBBB", alpha=0.4, linewidth=0, zorder=0)
            axis.axvline(mean(scratch), color="#666666", linestyle="--", linewidth=0.8, zorder=0)
        if counts:
            axis.axvline(mean(counts), color="#999999", linestyle=":", linewidth=1.2, zorder=0)
    if scratch and stages:
        text += f"; Std from scratch {mean(scratch):.3f}"
    if counts:
        text += f"; counting ones {mean(counts):.3f}"
    figure.set_label(text)
    return figure


def accuracy_title(runs: Sequence[Run]) -> str:
    """Title of the figure of test accuracies, which explains its grey and dotted lines if it has them."""
    scratch, counts = scratch_and_counts(runs)
    title = "Accuracy of every stage: every run, with the mean and its 95 % interval"
    title += "; grey: Std from scratch on the new task" if scratch else ""
    return title + ("; dotted: counting ones alone" if counts else "")


def scratch_and_counts(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """Test accuracies of nets trained only on task B, and of the rule that only counts the ones of an input."""
    finished = [run for run in runs if run.finished]
    scratch = [run.metrics["test_accuracy"] for run in finished if run.stage == "B"]
    return scratch, [run.metrics["bit_count"] for run in finished if "bit_count" in run.metrics]


@styled
def sweep_figure(runs: Sequence[Run]) -> Figure:
    """Draw the mean I(X;D) of the hidden layers after stage A over the number of bins; a change is an effect of the
    binning."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.0))
    groups, ranges = by_variant([run for run in runs if run.stage == "A"]), []
    for name, members in groups.items():
        bins = [int(count) for count in members[0].tables["sweep"]]
        sweeps = [run.tables["sweep"] for run in members]
        values = [mean(mean(row[0] for row in sweep[str(count)][1:-1]) for sweep in sweeps) for count in bins]
        axis.plot(bins, values, linewidth=0.9, markersize=5, label=name, **look_of(name, groups))
        ranges.append(f"{name} {values[0]:.1f} to {values[-1]:.1f}")
    axis.set(xscale="log", xlabel="bins", ylabel="mean I(X;D) of d2 … d6 in bits")
    axis.set_xticks(bins, [str(count) for count in bins])
    axis.minorticks_off()
    figure.legend(loc="outside upper center", ncols=min(4, len(groups)), fontsize=SMALL)
    figure.set_label(f"bits from {bins[0]} to {bins[-1]} bins: {', '.join(ranges)}")
    return figure
