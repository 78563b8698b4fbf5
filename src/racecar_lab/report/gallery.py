"""Which figures a page shows: the experiment's own, and those that all experiments have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from racecar_lab.experiment import Experiment
from racecar_lab.report.findings import Finding
from racecar_lab.report.groups import Group, Groups, Metric, collect, label
from racecar_lab.report.pictures import Picture, Place, picture
from racecar_lab.report.run_figures import curve_names, curves_figure, runs_figure, sweep_figure
from racecar_lab.running.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERY, SWEEP, CURVES = "Every run", "Over the coefficient", "Over training"
KINDS = (EVERY, SWEEP, CURVES)
"""Of figures that all experiments have."""


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


def draw_common(figures: Mapping[Place, Mapping[str, Figure]], prefix: str) -> list[Picture]:
    """Those that all experiments have, each with the place that it stands in."""
    return [
        replace(one, place=place)
        for i, (place, some) in enumerate(figures.items(), 1)
        for one in draw(some, f"{prefix}-{i}")
    ]


def main_and_more(own: Sequence[Picture], common: Sequence[Picture]) -> tuple[list[Picture], list[Picture]]:
    """What Markdown shows, and what the HTML page shows besides: an experiment that draws nothing itself has its runs
    for that, without their curves."""
    main = list(own) or [one for one in common if one.place[0] != CURVES] or list(common)
    return main, [one for one in common if one not in main]


def common_figures(
    groups: Groups,
    metrics: Sequence[Metric],
    paper: Mapping[tuple[Group, str], float],
    findings: Sequence[Finding],
    seen: Collection[str] = (),
) -> dict[Place, dict[str, Figure]]:
    """Every run, sweeps where there are any, and curves over training; one chart for each metric, for each setting.

    Args:
        groups: of the experiment.
        metrics: the ones to show.
        paper: values that the paper prints.
        findings: they say which coefficient runs and curves are shown for.
        seen: metrics of which the experiment shows every run itself.
    """
    figures: dict[Place, dict[str, Figure]] = {}
    for setting in groups.settings:
        members = groups.of(setting)
        where = label(setting)
        shown = [one for one in metrics if any(group.values(one[1]) for group in members if group.stage == one[0])]
        trained = _one_for_each(members, findings)
        for name, stages in collect((name, (stage, name)) for stage, name in shown if name not in seen).items():
            diamonds = "; ◇: the paper" if any((group, name) in paper for group in trained) else ""
            title = f"{name}: every run, with the mean and its 95 % interval{diamonds}"
            figures.setdefault((EVERY, where), {})[title] = runs_figure(trained, stages, paper)
        for stage, name in shown:
            if _is_sweep(groups.of(setting, stage)):
                title = f"{name}, stage {stage}, over the coefficient: mean ± sd"
                figures.setdefault((SWEEP, where), {})[title] = sweep_figure(members, [(stage, name)])
        for stage, name in curve_names(trained):
            title = f"{name}, stage {stage}, over training: mean ± sd"
            figures.setdefault((CURVES, where), {})[title] = curves_figure(trained, [(stage, name)])
    return dict(sorted(figures.items(), key=lambda one: KINDS.index(one[0][0])))


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
