"""The rule that chooses Racecar's defaults from the safety map. It was written before any net of the map was trained:

1. A net is dead if its loss is not finite, its output is the same for every input, or its accuracy on the source's
   test pictures is below chance + 10 points. Plain training *works* in a context (start, norm, depth, learning rate)
   if none of its nets there is dead, whatever the seed. A dead net was *killed* if plain training works in its context:
   where that itself is a toss-up, so is every other training.
2. A setting (gradient, scale, mode, λ) is *safe* if it killed none of its nets and neither did the same loss at the
   next larger λ of the grid (so the largest λ is never safe).
3. It is *harmless* if in each of the three norms the mean paired difference of source accuracy to the plain twins (same
   context and seed), where plain training works, is not below −1 point.
4. Of the safe and harmless settings whose scale has no unit (relative, ratio, anchored) and that constrain all layers,
   the one with the largest mean paired gain of the probe (10 labels) over all plain twins where plain training works,
   all norms pooled with equal weight, is best; settings whose gain is within one standard error (of the paired
   difference of the best) of it count as equal, and of these the smallest λ wins, then the cheaper gradient in the
   order reverse, weights, both.
5. The chosen setting is confirmed on all 54 contexts with fresh seeds (from 100 on, ten of them): if it killed a net
   there, the next setting in the order of rule 4 is taken.

That a default needs a scale without a unit was added after the map had been run, and before its confirmation: λ of
"mean" and "sum" is another one for pixels up to 1 and up to 255, and the map has one range only. As first written, rule
4 took reverse · mean · full at the smallest λ, one of many settings that are equal within the error. Losses that leave
the classifier out ("body") were added then, too, to see whether it does the harm. They were barred after they had been
run, as a number for ``weight`` is λ of all layers: with them the rule takes reverse · relative · full · body at the
same λ, equal within the error.

λ are compared on the axis that all losses share. A setting whose neighbour, or one of whose norms, was not run is not
known to be safe, or harmless. Where even the gradient is the same, the larger gain comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from racecar.support.extras import need
from racecar_lab.experiments.safety.design import (
    CONTEXTS,
    DEPTHS,
    GRADIENTS,
    GUIDES,
    LAMBDAS,
    NET_FIELDS,
    NORMS,
    SUMMED,
    Context,
    Setting,
)
from racecar_lab.report.groups import collect
from racecar_lab.report.settings import plain
from racecar_lab.running.run import Run

FRESH = 100
"""The first seed for confirmation of a default; smaller seeds are for its choice."""
CONFIRMING = 10
"""Number of seeds that a confirmation needs in every context."""
HARM = -0.01
"""A setting is harmless if in each norm the accuracy of its nets on the source task, minus that of Std in the same
context and with the same seed, is on average at least this."""
UNITLESS = ("relative", "ratio", "anchored")
"""Scales of the reverse loss for which λ does not depend on the range of the data."""
CONTEXT = list(Context._fields)
"""Names of the columns in a frame of nets that say in which context a net was trained."""
COLUMNS = ["loss", "place", *CONTEXT, "seed", "dead", "source", "probe"]


def nets_of(runs: Iterable[Run]) -> Any:
    """The nets of a safety map as a pandas frame with ``COLUMNS``, without those that were trained or measured in
    another way than most.

    Plain nets have the loss "". "source" is the accuracy on the source's test pictures, "probe" that of the probe with
    10 labels; both are NaN where the loss was not finite.
    """
    designed = (*NET_FIELDS, *GUIDES, "design")
    way_and_row = (
        (plain({name: value for name, value in run.config.items() if name not in designed}), _row(run)) for run in runs
    )
    rows = max(collect(way_and_row).values(), key=len, default=[])
    nets = need("pandas", "lab").DataFrame(rows, columns=COLUMNS)
    return nets.astype({"dead": bool, "source": float, "probe": float})


def _row(run: Run) -> tuple[Any, ...]:
    """The row of a run in the frame of nets: its values in the order of ``COLUMNS``."""
    config, metrics = run.config, run.metrics
    loss, place = "", 0.0
    if run.weight is not None:
        loss = ":".join(config[name] for name in ("gradient", "scale", "mode")) + ":body" * (config["layers"] == "body")
        place = float(f"{run.weight * (SUMMED if config['scale'] == 'sum' else 1):g}")
    context = (config[name] for name in CONTEXT)
    dead = not run.finished or bool(metrics.get("dead", 1.0))
    return loss, place, *context, run.seed, dead, *map(metrics.get, ("source_accuracy", "probe_10"))


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of the rule that chooses a default. ``cells``, ``fresh`` and ``pairs`` are pandas frames."""

    cells: Any
    """Frame with a row for each setting, from the seeds for the choice; ``summary`` describes the columns."""
    fresh: Any
    """Frame with a row for each setting, from the seeds for confirmation; ``summary`` describes the columns."""
    pairs: Any
    """Frame with a row for each net beside its plain twin (same context and seed, no reverse loss), in the contexts in
    which plain training works."""
    safe: frozenset[Setting]
    harmless: frozenset[Setting]
    order: tuple[Setting, ...]
    """Settings that can be a default, from the best on, in the order of rule 4."""
    chosen: Setting | None
    confirmed: bool
    counts: Mapping[str, int]
    """Numbers of plain nets ("plain"), of dead ones among them ("dead"), of their contexts ("contexts"), of contexts in
    which plain training works ("working"), and of nets without a plain twin, which are left out ("alone")."""


def judge(nets: Any) -> Verdict:
    """Apply the rule that chooses Racecar's defaults to the frame that ``nets_of`` returns."""
    twins, constrained = nets[nets.loss == ""], nets[nets.loss != ""]
    works = ~twins.groupby(CONTEXT).dead.any()
    with_twin = constrained.merge(twins, on=[*CONTEXT, "seed"], suffixes=("", "_plain"))
    pairs = with_twin.merge(works[works].reset_index()[CONTEXT], on=CONTEXT)
    cells, fresh = summary(pairs[pairs.seed < FRESH]), summary(pairs[pairs.seed >= FRESH])
    killed = cells["nets", "killed"].unstack("place").reindex(columns=LAMBDAS)
    safe = ((killed == 0) & (killed.shift(-1, axis=1) == 0)).stack()
    harmless = (cells["source"] >= HARM - 1e-12).all(axis=1)  # with a tolerance, so that −1 point itself is harmless
    eligible = cells[harmless & safe.reindex(cells.index, fill_value=False)]
    order = tuple(ranked(eligible["gain"][[can_be_a_default(loss) for loss, _ in eligible.index]]))
    not_refuted = [setting for setting in order if setting not in fresh.index or not fresh["nets", "killed"][setting]]
    chosen = not_refuted[0] if not_refuted else None
    confirming = with_twin[
        (with_twin.seed >= FRESH) & with_twin.set_index(["loss", "place"]).index.isin(not_refuted[:1])
    ]
    confirmed = len(confirming) > 0 and bool(
        (confirming.groupby(CONTEXT).seed.nunique().reindex(CONTEXTS) >= CONFIRMING).all()
    )
    counts = {
        "plain": len(twins), "dead": int(twins.dead.sum()), "contexts": len(works), "working": int(works.sum()),
        "alone": len(constrained) - len(with_twin),
    }  # fmt: skip
    safe_settings, harmless_settings = (frozenset(flags[flags].index) for flags in (safe, harmless))
    return Verdict(cells, fresh, pairs, safe_settings, harmless_settings, order, chosen, confirmed, counts)


def summary(pairs: Any) -> Any:
    """Summarise nets that are paired with their plain twins: a frame with a row for each setting and two levels of
    columns.

    "nets" has their number and how many were killed; "source" and "probe" have mean paired differences by norm, and
    "depth" those of the probe by depth without norm, with standard errors; "gain" has the difference of the probe with
    equal weight of the norms.
    """
    pandas, setting = need("pandas", "lab"), ["loss", "place"]
    pairs = pairs.assign(source=pairs.source - pairs.source_plain, probe=pairs.probe - pairs.probe_plain)

    def mean_and_error(pairs: Any, name: str, by: str, levels: tuple[Any, ...]) -> tuple[Any, Any]:
        values = pairs.groupby([*setting, by])[name]
        return tuple(part.unstack().reindex(columns=levels) for part in (values.mean(), values.sem().fillna(0)))

    source, _ = mean_and_error(pairs, "source", "norm", NORMS)
    probe, error = mean_and_error(pairs, "probe", "norm", NORMS)
    deep, deep_error = mean_and_error(pairs[pairs.norm == "none"], "probe", "depth", DEPTHS)
    gain = {"mean": probe.mean(axis=1), "error": (error**2).sum(axis=1) ** 0.5 / probe.notna().sum(axis=1)}
    parts = {
        "nets": pairs.groupby(setting).dead.agg(nets="size", killed="sum"), "source": source,
        "probe": probe, "probe error": error, "depth": deep, "depth error": deep_error, "gain": pandas.DataFrame(gain),
    }  # fmt: skip
    return pandas.concat(parts, axis=1)


def can_be_a_default(loss: str) -> bool:
    """True if a loss can be a default of Racecar: its scale has no unit, and all layers have a reverse loss."""
    return loss.split(":")[1] in UNITLESS and not loss.endswith(":body")


def ranked(gains: Any) -> list[Setting]:
    """Rank settings by rule 4, by which a default is chosen: the best, then the best of the others, and so on.

    Args:
        gains: a pandas frame with a row for each setting, with its mean gain, "mean", and the standard error, "error".
    """
    gains, order = gains.dropna(), []
    while len(gains):
        best = gains.loc[gains["mean"].idxmax()]
        equal = gains["mean"][gains["mean"] >= best["mean"] - best["error"]]
        cost = {setting: GRADIENTS.index(setting[0].split(":")[0]) for setting in equal.index}
        order.append(min(equal.index, key=lambda setting: (setting[1], cost[setting], -equal[setting])))
        gains = gains.drop(index=order[-1:])
    return order
