"""How Racecar's defaults are chosen from the safety map. The rule was written before any net of it was trained:

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
    NORMS,
    OWN,
    SUMMED,
    Context,
    Setting,
)
from racecar_lab.report.groups import plain
from racecar_lab.running.run import Run

FRESH = 100
"""Seeds from here on confirm; those below choose."""
CONFIRMING = 10
"""Seeds that a confirmation needs in every context."""
HARM = -0.01
UNITLESS = ("relative", "ratio", "anchored")
"""Scales for which λ does not depend on the range of the data."""
CONTEXT = list(Context._fields)
COLUMNS = ["loss", "place", *CONTEXT, "seed", "dead", "source", "probe"]


def nets_of(runs: Iterable[Run]) -> tuple[Any, int]:
    """The nets of a map, a pandas frame with ``COLUMNS``, and how many others were left out: those that were trained or
    measured in another way than most.

    Plain nets have the loss "". "source" is the accuracy on the source's test pictures, "probe" that with 10 labels;
    they are NaN where the loss was not finite.
    """
    rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for run in runs:
        if run.record["experiment"] == "safety":
            rest = {name: plain(value) for name, value in run.config.items() if name not in (*OWN, *GUIDES, "design")}
            rows.setdefault(tuple(sorted(rest.items())), []).append(_row(run))
    most = max(rows.values(), key=len, default=[])
    nets = (
        need("pandas", "lab").DataFrame(most, columns=COLUMNS).astype({"dead": bool, "source": float, "probe": float})
    )
    return nets, sum(map(len, rows.values())) - len(most)


def _row(run: Run) -> tuple[Any, ...]:
    config, metrics = run.config, run.metrics
    loss, place = "", 0.0
    if run.coefficient is not None:
        loss = ":".join(config[name] for name in ("gradient", "scale", "mode")) + ":body" * (config["layers"] == "body")
        place = float(f"{run.coefficient * (SUMMED if config['scale'] == 'sum' else 1):g}")
    context = (config[name] for name in CONTEXT)
    dead = not run.finished or bool(metrics.get("dead", 1.0))
    return loss, place, *context, run.seed, dead, *map(metrics.get, ("source_accuracy", "probe_10"))


@dataclass(frozen=True, eq=False)
class Verdict:
    """The rule's outcome. ``cells``, ``fresh`` and ``pairs`` are pandas frames."""

    cells: Any
    """The nets of each setting by which it is judged, as ``summary`` has them."""
    fresh: Any
    """The same of the confirmations."""
    pairs: Any
    """All these nets beside their plain twins, where plain training works."""
    safe: frozenset[Setting]
    harmless: frozenset[Setting]
    order: tuple[Setting, ...]
    """Settings that can be a default, as rule 4 has them."""
    chosen: Setting | None
    confirmed: bool
    counts: Mapping[str, int]
    """Of plain nets, "plain", those that are "dead", their "contexts", those in which plain training works ("working"),
    and of nets without a plain twin, which say nothing ("alone")."""


def judge(nets: Any) -> Verdict:
    """Apply the rule to nets as ``nets_of`` has them."""
    twins, constrained = nets[nets.loss == ""], nets[nets.loss != ""]
    works = ~twins.groupby(CONTEXT).dead.any()
    every = constrained.merge(twins, on=[*CONTEXT, "seed"], suffixes=("", "_plain"))
    pairs = every.merge(works[works].reset_index()[CONTEXT], on=CONTEXT)
    cells, fresh = summary(pairs[pairs.seed < FRESH]), summary(pairs[pairs.seed >= FRESH])
    killed = cells["nets", "killed"].unstack("place").reindex(columns=LAMBDAS)
    safe = ((killed == 0) & (killed.shift(-1, axis=1) == 0)).stack()
    harmless = (cells["source"] >= HARM - 1e-12).all(axis=1)  # −1 point itself is none below
    both = cells[harmless & safe.reindex(cells.index, fill_value=False)]
    order = tuple(ranked(both["gain"][[can_be_a_default(loss) for loss, _ in both.index]]))
    standing = [setting for setting in order if setting not in fresh.index or not fresh["nets", "killed"][setting]]
    chosen = standing[0] if standing else None
    seen = every[(every.seed >= FRESH) & every.set_index(["loss", "place"]).index.isin(standing[:1])]
    confirmed = len(seen) > 0 and bool((seen.groupby(CONTEXT).seed.nunique().reindex(CONTEXTS) >= CONFIRMING).all())
    counts = {
        "plain": len(twins), "dead": int(twins.dead.sum()), "contexts": len(works), "working": int(works.sum()),
        "alone": len(constrained) - len(every),
    }  # fmt: skip
    safe_ones, harmless_ones = (frozenset(flags[flags].index) for flags in (safe, harmless))
    return Verdict(cells, fresh, pairs, safe_ones, harmless_ones, order, chosen, confirmed, counts)


def summary(pairs: Any) -> Any:
    """For each setting, the index: "nets", how many there were and were killed; mean paired differences of "source" and
    "probe" by norm, and of the probe by "depth" without norm, with standard errors; and "gain", that of the probe with
    equal weight of the norms."""
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
    """Whether its scale has no unit and all layers are constrained."""
    return loss.split(":")[1] in UNITLESS and not loss.endswith(":body")


def ranked(gains: Any) -> list[Setting]:
    """Rule 4, again and again: the best, then the best of the rest. Gains: setting → "mean" and "error"."""
    gains, order = gains.dropna(), []
    while len(gains):
        best = gains.loc[gains["mean"].idxmax()]
        equal = gains["mean"][gains["mean"] >= best["mean"] - best["error"]]
        cost = {setting: GRADIENTS.index(setting[0].split(":")[0]) for setting in equal.index}
        order.append(min(equal.index, key=lambda setting: (setting[1], cost[setting], -equal[setting])))
        gains = gains.drop(index=order[-1:])
    return order
