"""What a page says before its figures: its loss, its first weights, and what a step costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from racecar_lab.experiment import Experiment
from racecar_lab.report.groups import Group, Groups, Setting, collect
from racecar_lab.report.loss import loss_of
from racecar_lab.running.run import Run
from racecar_lab.training.variants import VARIANTS

K = TypeVar("K")
NOT_STD = ("fraction", "every", "layers", "decay", "scale", "gradient", "reduction", "weight", "mode", "cost")
"""Settings that say nothing to plain training: a variant with any of them stands beside the same Std."""
APART = 1.5
"""The largest ratio over the smallest at most, or the machine did other work and they say nothing."""

LEAST = 0.95
"""A step with a reverse pass that takes less than this of one without was timed beside other work, too."""


def about(groups: Groups, experiment: Experiment[Any], configs: Sequence[Any]) -> dict[str, str]:
    """Name → what is said of it; what is not known is left out.

    Args:
        configs: the configurations of the groups, as the experiment knows them.
    """
    all_of = {
        "data": map(experiment.told_data, configs),
        "reverse loss": (loss_of(experiment, config) for config in configs),
        "first weights": map(experiment.first_weights, configs),
        "pairs": [] if experiment.clusters is None else [experiment.clusters.told],
        "a step costs": [told_costs(groups.groups)],
    }
    joined = {name: "; ".join(dict.fromkeys(filter(None, texts))) for name, texts in all_of.items()}
    return {name: text for name, text in joined.items() if text}


def told_costs(groups: Sequence[Group]) -> str:
    """Time of a step over that of Std with the same seed, on the same engine and device; for every slice of the reverse
    pass. Where some were timed alone, of those. Empty if nothing can be compared."""
    slices = _slices(groups, alone=True) or _slices(groups)
    if not slices:
        return ""
    if not all(map(credible, slices.values())):
        low, high = (end(ratio for ratios in slices.values() for ratio in ratios) for end in (min, max))
        single = f"{low:.2f} to {high:.2f} × Std"
        return f"not known from these runs: single seeds have {single}, as on a machine that does other work"
    texts = [f"{name} {_range(ratios)} × Std" for name, ratios in slices.items()]
    return f"{', '.join(texts)} (same seed, same machine)"


def credible(ratios: Sequence[float]) -> bool:
    """Whether times of steps over those of Std can be from a machine that did nothing else."""
    return min(ratios) >= LEAST and max(ratios) <= APART * min(ratios)


def step_ratios(ours: Mapping[K, Run], std: Mapping[K, Run], alone: bool = False) -> list[float]:
    """Time of a step over that of the run of the same name, on the same engine and device.

    Args:
        alone: take only pairs that one process made, one after the other.
    """
    pairs = [(run, std[name]) for name, run in ours.items() if name in std and _machine(run) == _machine(std[name])]
    if alone:
        pairs = [(run, plain) for run, plain in pairs if _process(run) == _process(plain) is not None]
    return [_step(run) / _step(plain) for run, plain in pairs if _step(run) and _step(plain)]


def _slices(groups: Sequence[Group], alone: bool = False) -> dict[str, list[float]]:
    """Slice of the reverse pass → ratios to Std."""
    return collect(
        (_slice(group), ratio)
        for group in groups
        if group.regularised and (which := VARIANTS.get(group.variant)) is not None and which.kind == "reverse"
        for ratio in _ratios(group, groups, alone)
    )


def _slice(group: Group) -> str:
    """As "RR with 1/8 of the batch in one of 4 steps"."""
    fraction, every = group.config.get("fraction", 1.0), group.config.get("every", 1)
    share = "all of the batch" if fraction == 1 else f"1/{round(1 / fraction)} of the batch"
    return f"{group.variant} with {share}" + ("" if every == 1 else f" in one of {every} steps")


def _ratios(group: Group, groups: Sequence[Group], alone: bool) -> list[float]:
    """Of each seed that Std has, too."""
    std = [
        other.runs
        for other in groups
        if (other.variant, other.stage, _plain(other.setting)) == ("Std", group.stage, _plain(group.setting))
    ]
    return [ratio for runs in std for ratio in step_ratios(group.runs, runs, alone)]


def _plain(setting: Setting) -> Setting:
    return tuple((name, value) for name, value in setting if name not in NOT_STD)


def _machine(run: Run) -> tuple[str, str]:
    return str(run.record["made"].get("engine")), str(run.record["made"].get("device"))


def _process(run: Run) -> str | None:
    """The command that made it, where that had one process; several at once are in each other's way."""
    return run.record["made"].get("command") if run.record["made"].get("workers") == 1 else None


def _step(run: Run) -> float:
    """Seconds; 0 where they are not known."""
    return float(run.record["cost"].get("step_s") or 0)


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end:.2f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
