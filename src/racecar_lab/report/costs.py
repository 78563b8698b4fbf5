"""The cost of a training step: time and memory of groups of runs, compared with those of plain training on the same
machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from racecar_lab.report import words
from racecar_lab.report.clustered import Key
from racecar_lab.report.groups import Group, collect
from racecar_lab.report.page_table import Cell, Table, number_cell
from racecar_lab.report.result_tables import group_cells
from racecar_lab.report.settings import without
from racecar_lab.running.run import Run
from racecar_lab.training.variants import VARIANTS

K = TypeVar("K")
Place = tuple[str, str]
"""Engine and device that made a run; costs are compared only where both are the same."""
REGULARISER_FIELDS = (
    "fraction", "every", "layers", "decay", "scale", "gradient", "reduction", "weight", "mode", "cost",
)  # fmt: skip
"""Configuration fields that change nothing in plain training: groups that differ only in these are compared with the
same runs of Std."""
APART = 1.5
"""Maximal ratio of the largest to the smallest of several relative step times, up to which they are believed: beyond it
the machine did other work."""
LEAST = 0.95
"""Minimal time of a step with a reverse pass, divided by that of a step without, which is believed: below it, the
machine did other work beside one of the two."""


def cost_table(groups: Sequence[Group], reference: str = "Std") -> Table:
    """Table of the time of a training step and the peak memory of each group with a regulariser (of all groups, if none
    has one). Both are also given as ratios to those of the variant ``reference`` with the same setting, engine and
    device."""
    rows = []
    for group in [group for group in groups if group.regularised] or groups:
        wanted = group.setting, group.stage, reference
        same = [other for other in groups if (other.setting, other.stage, other.variant) == wanted]
        for place in sorted({_place(run) for run in group.runs.values()}):
            rows.append({
                **group_cells(group), "device": Cell(place[1], kind="word", note=place[0] and f"engine {place[0]}"),
                "time per step": _median_cell(_costs(group, place, "step_s").values(), words.seconds),
                f"time × {reference}": _median_cell(_ratios(group, same, place, "step_s"), words.ratio),
                "peak memory": _median_cell(_costs(group, place, "peak_memory").values(), words.size),
                f"memory × {reference}": _median_cell(_ratios(group, same, place, "peak_memory"), words.ratio),
                "runs": number_cell(sum(_place(run) == place for run in group.runs.values()), str),
            })  # fmt: skip
    return Table.of("Time and memory during the runs, beside which the machine may have done other work", rows)


def step_cost(groups: Sequence[Group]) -> str:
    """Text on the time of a training step divided by that of Std with the same seed, engine and device, for each share
    of the batch and of the steps that the reverse pass sees. If some pairs of runs were timed with nothing beside them,
    only of those. Empty if nothing can be compared."""
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
    """True if these step times, divided by those of Std, can be from a machine that did nothing else."""
    return min(ratios) >= LEAST and max(ratios) <= APART * min(ratios)


def step_ratios(ours: Mapping[K, Run], std: Mapping[K, Run], alone: bool = False) -> list[float]:
    """Ratios of step times: that of each of our runs divided by that of the run of Std under the same key, if engine
    and device are the same.

    Args:
        alone: take only pairs of runs that one process made, one after the other, so that none was slowed down.
    """
    pairs = [(run, std[name]) for name, run in ours.items() if name in std and _place(run) == _place(std[name])]
    if alone:
        pairs = [(run, plain) for run, plain in pairs if _process(run) == _process(plain) is not None]
    return [_step(run) / _step(plain) for run, plain in pairs if _step(run) and _step(plain)]


def _slices(groups: Sequence[Group], alone: bool = False) -> dict[str, list[float]]:
    """Variant and the part of the training that its reverse pass sees, such as "RR with 1/8 of the batch in one of 4
    steps" → step times divided by those of Std."""
    plain = collect(((group.stage, without(group.setting, REGULARISER_FIELDS)), group)
                    for group in groups if group.variant == "Std")  # fmt: skip
    slices = []
    for group in groups:
        if group.regularised and group.variant in VARIANTS and VARIANTS[group.variant].kind == "reverse":
            fraction, every = group.config.get("fraction", 1.0), group.config.get("every", 1)
            share = "all of the batch" if fraction == 1 else f"1/{round(1 / fraction)} of the batch"
            name = f"{group.variant} with {share}" + ("" if every == 1 else f" in one of {every} steps")
            for std in plain.get((group.stage, without(group.setting, REGULARISER_FIELDS)), []):
                slices += [(name, ratio) for ratio in step_ratios(group.runs, std.runs, alone)]
    return collect(slices)


def _place(run: Run) -> Place:
    return str(run.record["made"].get("engine") or ""), str(run.record["made"].get("device") or "")


def _process(run: Run) -> str | None:
    """The command line that made a run, if it used one process; None if it used several, which slow each other down."""
    return run.record["made"].get("command") if run.record["made"].get("workers") == 1 else None


def _step(run: Run) -> float:
    """Seconds of a training step of a run; 0 if they are not known."""
    return float(run.record["cost"].get("step_s") or 0)


def _costs(group: Group, place: Place, name: str) -> dict[Key, float]:
    """The cost called ``name``, such as "step_s", of a group's runs on one engine and device: seed (and cluster) →
    cost."""
    costs = {key: run.record["cost"].get(name) for key, run in group.runs.items() if _place(run) == place}
    return {key: cost for key, cost in costs.items() if cost is not None}


def _ratios(group: Group, references: Sequence[Group], place: Place, name: str) -> list[float]:
    """Ratios of the cost called ``name`` of a group's runs to that of the reference groups' runs with the same seed, on
    one engine and device; to the median, if several reference groups have a run."""
    costs = collect(item for reference in references for item in _costs(reference, place, name).items())
    base = {key: median(values) for key, values in costs.items()}
    return [cost / base[key] for key, cost in _costs(group, place, name).items() if base.get(key)]


def _median_cell(values: Collection[float], write: Callable[[Any], str]) -> Cell:
    """A table cell with the median of the values, "n/a" if there are none. It is the median because a busy machine
    spoils a mean."""
    return number_cell(median(values), write) if values else Cell("n/a", kind="number")


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end:.2f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
