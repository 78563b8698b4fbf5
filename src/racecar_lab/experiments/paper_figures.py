"""Charts of the experiments, drawn from records, and what their pictures share with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.report.groups import by_variant, collect, gather
from racecar_lab.report.run_figures import runs_figure
from racecar_lab.training.loss_config import LOSS, PAPER, loss_name
from racecar_lab.training.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run


DASHES = ("-", "--", ":", "-.")
"""Lines of one variant with several coefficients."""
STAGES = ("A", "AA", "AB")
"""Of a net that was regularised, and what follows."""


def chosen(runs: Sequence[Run]) -> list[Run]:
    """Without the runs of a sweep, where a search has chosen the coefficient."""
    return [run for run in runs if run.record.get("tuned", {}).get("coefficient", run.coefficient) == run.coefficient]


def rows_of(runs: Sequence[Run], kinds: Mapping[str, tuple[str, object]]) -> dict[str, list[Run]]:
    """Name → runs, as "RR", "RR, the paper's loss" or "Std, longer": the variants in our order, then those that differ
    in more.

    Args:
        kinds: what else is in a name: the field of the configuration, and the value with which it is said.
    """

    def more(run: Run) -> tuple[bool, ...]:
        loss = {name: run.config[name] for name in LOSS}
        paper = VARIANTS[run.variant].kind == "reverse" and loss == PAPER
        return *(run.config[field] == value for field, value in kinds.values()), paper

    words = *kinds, f"{loss_name(PAPER)} loss"
    found: dict[str, list[Run]] = {}
    for said, some in sorted(collect((more(run), run) for run in runs).items()):
        suffix = "".join(f", {word}" for word, holds in zip(words, said, strict=True) if holds)
        found |= {f"{name}{suffix}": members for name, members in by_variant(some).items()}
    return found


def having(runs: Sequence[Run], array: str) -> list[Run]:
    """Those that have kept it."""
    return [run for run in runs if array in run.arrays]


def look_of(name: str, names: Iterable[str]) -> dict[str, Any]:
    """Of a name that ``by_variant`` gives: a variant's colour and marker, and a line for each of its coefficients."""
    variant = name.split()[0]
    alike = [one for one in names if one.split()[0] == variant]
    return {**look(variant), "linestyle": DASHES[alike.index(name) % len(DASHES)]}


@styled
def plane_figure(runs: Sequence[Run]) -> Figure:
    """I(X;D) and I(D;Y) of every layer after one stage, mean over the seeds; the first variant's layers are named."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.6))
    groups, said = by_variant(runs), []
    for name, some in groups.items():
        style = look_of(name, groups)
        points = torch.tensor([[(row["i_xd"], row["i_dy"]) for row in run.tables["plane"]] for run in some])
        x, y = points.mean(0).unbind(1)
        axis.plot(x.tolist(), y.tolist(), linewidth=0.8, markersize=6, label=name, **style)
        said.append(f"{name} {float(x.min()):.1f} to {float(x.max()):.1f}")
        if len(said) == 1:
            names = [row["name"] for row in some[0].tables["plane"]]
            for text, place in zip(names, zip(x.tolist(), y.tolist(), strict=True), strict=True):
                axis.annotate(
                    text, place, (0, 5), textcoords="offset points", fontsize=SMALL, color=style["color"], ha="center"
                )
    axis.set(xlabel="I(X;D) in bits", ylabel="I(D;Y) in bits", xlim=(-0.3, 12.6), ylim=(-0.03, 1.12))
    figure.legend(loc="outside upper center", ncols=min(4, len(groups)), fontsize=SMALL)
    figure.set_label(f"bits about the input, from the poorest layer to the richest: {', '.join(said)}")
    return figure


def accuracy_figure(runs: Sequence[Run]) -> Figure:
    """Test accuracy of every stage and variant, each seed a dot. Grey: Std trained on B from scratch, all seeds and
    their mean; dotted: what counting ones alone has."""
    groups = gather(runs).groups
    stages = [stage for stage in STAGES if any(one.stage == stage for one in groups)]
    figure = runs_figure(groups, [(stage, "test_accuracy") for stage in stages or ["B"]], {})
    scratch, counts = scratch_and_counts(runs)
    said = str(figure.get_label())
    low, high = figure.axes[0].get_xlim()
    for axis in figure.axes:
        axis.set_xlim(min([low, *scratch, *counts]), max([high, *scratch, *counts]))
        if scratch and stages:
            axis.axvspan(min(scratch), max(scratch), color="#BBBBBB", alpha=0.4, linewidth=0, zorder=0)
            axis.axvline(mean(scratch), color="#666666", linestyle="--", linewidth=0.8, zorder=0)
        if counts:
            axis.axvline(mean(counts), color="#999999", linestyle=":", linewidth=1.2, zorder=0)
    if scratch and stages:
        said += f"; Std from scratch {mean(scratch):.3f}"
    if counts:
        said += f"; counting ones {mean(counts):.3f}"
    figure.set_label(said)
    return figure


def accuracy_title(runs: Sequence[Run]) -> str:
    """What the figure of accuracies shows."""
    scratch, counts = scratch_and_counts(runs)
    more = ["grey: Std from scratch on the new task"] if scratch else []
    more += ["dotted: counting ones alone"] if counts else []
    return (
        f"Accuracy of every stage: every run, with the mean and its 95 % interval{''.join(f'; {one}' for one in more)}"
    )


def scratch_and_counts(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """Accuracies of nets trained on B alone, and of the rule that counts ones."""
    finished = [run for run in runs if run.finished]
    scratch = [run.metrics["test_accuracy"] for run in finished if run.stage == "B"]
    return scratch, [run.metrics["bit_count"] for run in finished if "bit_count" in run.metrics]


@styled
def sweep_figure(runs: Sequence[Run]) -> Figure:
    """Mean I(X;D) of the hidden layers over the number of bins, stage A: what moves with the bins is not the net's."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.0))
    groups, said = by_variant([run for run in runs if run.stage == "A"]), []
    for name, some in groups.items():
        bins = [int(count) for count in some[0].tables["sweep"]]
        values = [mean(mean(row[0] for row in run.tables["sweep"][str(count)][1:-1]) for run in some) for count in bins]
        axis.plot(bins, values, linewidth=0.9, markersize=5, label=name, **look_of(name, groups))
        said.append(f"{name} {values[0]:.1f} to {values[-1]:.1f}")
    axis.set(xscale="log", xlabel="bins", ylabel="mean I(X;D) of d2 … d6 in bits")
    axis.set_xticks(bins, [str(count) for count in bins])
    axis.minorticks_off()
    figure.legend(loc="outside upper center", ncols=min(4, len(groups)), fontsize=SMALL)
    figure.set_label(f"bits from {bins[0]} to {bins[-1]} bins: {', '.join(said)}")
    return figure
