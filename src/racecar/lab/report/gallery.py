"""Which figures a page shows: the experiment's own, and those that all experiments have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from racecar.lab.experiment import Experiment
from racecar.lab.report.findings import Finding
from racecar.lab.report.groups import Group, Groups, Metric, collect, label
from racecar.lab.report.pictures import Picture, picture
from racecar.lab.report.run_figures import curves, curves_figure, runs_figure, sweep_figure
from racecar.lab.running.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = "Over training"
"""So begin the titles of curves."""


def own_pictures(experiment: Experiment | None, runs: Sequence[Run], anchor: str) -> tuple[list[Picture], str]:
    """What an experiment draws of its finished runs, and what went wrong with it: the rest is not lost for that."""
    if experiment is None or not runs:
        return [], ""
    try:
        return draw(experiment.figures(runs), f"{anchor}-own"), ""
    except Exception as error:
        return [], f"the figures of {experiment.name} could not be drawn: {type(error).__name__}: {error}"


def draw(figures: Mapping[str, Figure], prefix: str) -> list[Picture]:
    """Figures by title, as parts of a page."""
    return [picture(figure, title, f"{prefix}-{i}") for i, (title, figure) in enumerate(figures.items(), 1)]


def main_and_more(own: Sequence[Picture], common: Sequence[Picture]) -> tuple[list[Picture], list[Picture]]:
    """What Markdown shows, and what the HTML page shows besides: an experiment that draws nothing itself has its runs
    for that, without their curves."""
    main = list(own) or [one for one in common if not one.title.startswith(CURVES)] or list(common)
    return main, [one for one in common if one not in main]


def common_figures(
    groups: Groups, metrics: Sequence[Metric], paper: Mapping[tuple[Group, str], float], findings: Sequence[Finding]
) -> dict[str, Figure]:
    """Every run, sweeps where there are any, and curves over training; for each setting.

    Args:
        groups: of the experiment.
        metrics: the ones to show.
        paper: values that the paper prints.
        findings: they say which coefficient the curves are shown for.
    """
    figures: dict[str, Figure] = {}
    for setting in groups.settings:
        members = groups.of(setting)
        where = f" ({label(setting)})" if setting else ""
        shown = [one for one in metrics if any(group.values(one[1]) for group in members if group.stage == one[0])]
        diamonds = "; ◇: the paper" if any((group, name) in paper for group in members for _, name in shown) else ""
        if shown:
            figures[f"Every run; bars: means with 95 % intervals{diamonds}{where}"] = runs_figure(members, shown, paper)
        swept = [(stage, metric) for stage, metric in shown if _is_sweep(groups.of(setting, stage))]
        if swept:
            figures[f"Over the coefficient: mean ± sd{where}"] = sweep_figure(members, swept)
        trained = _one_for_each(members, findings)
        if any(map(curves, trained)):
            figures[f"{CURVES}: mean ± sd{where}"] = curves_figure(trained)
    return figures


def _is_sweep(groups: Sequence[Group]) -> bool:
    """Whether some variant was run with more than one coefficient."""
    pairs = {(group.variant, group.coefficient) for group in groups if group.coefficient is not None}
    return max(Counter(variant for variant, _ in pairs).values(), default=0) > 1


def _one_for_each(groups: Sequence[Group], findings: Sequence[Finding]) -> list[Group]:
    """One for each stage and variant: of several coefficients the one that a claim is about, or the middle one."""
    judged = {(one.variant, one.coefficient) for found in findings for one in (found.better, found.than) if one}
    return [
        next((one for one in some if (one.variant, one.coefficient) in judged), some[len(some) // 2])
        for some in collect(((group.stage, group.variant), group) for group in groups).values()
    ]
