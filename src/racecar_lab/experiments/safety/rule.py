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

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

from racecar_lab.experiments.safety.design import CONTEXTS, DEPTHS, GRADIENTS, LAMBDAS, NORMS, Context, Loss, Setting

FRESH = 100
"""Seeds from here on confirm; those below choose."""
CONFIRMING = 10
"""Seeds that a confirmation needs in every context."""
HARM = -0.01
UNITLESS = ("relative", "ratio", "anchored")
"""Scales for which λ does not depend on the range of the data."""


@dataclass(frozen=True)
class Row:
    """One net."""

    setting: Setting | None
    """None: trained plainly."""
    context: Context
    seed: int
    dead: bool
    source: float | None = None
    """Accuracy on the source's test pictures; None where the loss was not finite."""
    probe: float | None = None


@dataclass(frozen=True)
class MapCell:
    """What became of the nets of a setting where plain training works."""

    nets: int
    killed: tuple[tuple[Context, int], ...]
    """Context and seed of each."""
    source: Mapping[str, float]
    """Norm → mean paired difference of source accuracy."""
    gain: float | None
    """Of the probe; None: none was measured."""
    error: float
    """Standard error of it."""
    gains: Mapping[str, tuple[float, float]]
    """Norm → the same of its nets: gain and standard error."""
    plain_gains: Mapping[int, tuple[float, float]]
    """Depth → the same of nets without a norm."""

    @property
    def share(self) -> float:
        return len(self.killed) / self.nets if self.nets else 0.0


@dataclass(frozen=True)
class Verdict:
    """The rule's outcome."""

    cells: Mapping[Setting, MapCell]
    safe: frozenset[Setting]
    harmless: frozenset[Setting]
    order: tuple[Setting, ...]
    """Settings that can be a default, as rule 4 has them."""
    fresh: Mapping[Setting, MapCell]
    """The confirmations."""
    chosen: Setting | None
    confirmed: bool
    alone: int
    """Nets without a plain twin, which say nothing."""
    plain_dead: int
    plain: int
    working: int
    """Contexts in which plain training works."""
    contexts: int


def judge(rows: Iterable[Row]) -> Verdict:
    """Apply the rule."""
    rows = list(rows)
    plain = {(row.context, row.seed): row for row in rows if row.setting is None}
    fatal = {row.context for row in plain.values() if row.dead}
    pairs: dict[bool, dict[Setting, list[tuple[Row, Row]]]] = {False: {}, True: {}}
    alone = 0
    for row in rows:
        twin = plain.get((row.context, row.seed))
        if row.setting is not None and twin is not None:
            pairs[row.seed >= FRESH].setdefault(row.setting, []).append((row, twin))
        alone += row.setting is not None and twin is None
    cells, fresh = ({setting: _cell(some, fatal) for setting, some in one.items()} for one in pairs.values())
    safe = frozenset(setting for setting in cells if _is_safe(setting, cells))
    harmless = frozenset(setting for setting, cell in cells.items() if _is_harmless(cell))
    able = [one for one in safe & harmless if one.loss.scale in UNITLESS and one.loss.layers == "all"]
    order = tuple(ranked({setting: cells[setting] for setting in able}))
    left = [setting for setting in order if not (setting in fresh and fresh[setting].killed)]
    chosen = left[0] if left else None
    confirmed = chosen is not None and _covers(pairs[True].get(chosen, []))
    dead, contexts = sum(row.dead for row in plain.values()), {row.context for row in plain.values()}
    counts = (alone, dead, len(plain), len(contexts - fatal), len(contexts))
    return Verdict(cells, safe, harmless, order, fresh, chosen, confirmed, *counts)


def _cell(pairs: Sequence[tuple[Row, Row]], fatal: Set[Context]) -> MapCell:
    """Rows with their twins, but for contexts in which a plain net died."""
    living = [(row, twin) for row, twin in pairs if row.context not in fatal]
    killed = tuple((row.context, row.seed) for row, _ in living if row.dead)
    source = _differences(living, "source")
    gains = {norm: _mean(some) for norm, some in _differences(living, "probe").items()}
    bare = {
        depth: [(a, b) for a, b in living if a.context.norm == "none" and a.context.depth == depth] for depth in DEPTHS
    }
    deep = {depth: _mean(found["none"]) for depth, some in bare.items() if (found := _differences(some, "probe"))}
    gain = fmean(mean for mean, _ in gains.values()) if gains else None
    error = sqrt(sum(one**2 for _, one in gains.values())) / len(gains) if gains else 0.0
    return MapCell(len(living), killed, {norm: fmean(some) for norm, some in source.items()}, gain, error, gains, deep)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """With its standard error."""
    return fmean(values), sqrt(variance(values) / len(values)) if len(values) > 1 else 0.0


def _differences(pairs: Sequence[tuple[Row, Row]], name: str) -> dict[str, list[float]]:
    """Norm → differences to the twins, of those that were measured."""
    found: dict[str, list[float]] = {}
    for row, twin in pairs:
        mine, other = getattr(row, name), getattr(twin, name)
        if mine is not None and other is not None:
            found.setdefault(row.context.norm, []).append(mine - other)
    return found


def _is_safe(setting: Setting, cells: Mapping[Setting, MapCell]) -> bool:
    larger = [Setting(setting.loss, place) for place in LAMBDAS if place > setting.place][:1]
    return bool(larger) and all(one in cells and not cells[one].killed for one in (setting, *larger))


def _is_harmless(cell: MapCell) -> bool:
    return all(cell.source.get(norm, float("-inf")) >= HARM - 1e-12 for norm in NORMS)  # −1 point itself is none below


def ranked(cells: Mapping[Setting, MapCell]) -> list[Setting]:
    """Rule 4, again and again: the best, then the best of the rest."""
    left = {setting: (cell.gain, cell.error) for setting, cell in cells.items() if cell.gain is not None}
    order = []
    while left:
        best = max(left, key=lambda one: left[one][0])
        gain, error = left[best]
        equal = [one for one in left if left[one][0] >= gain - error]
        first = min(equal, key=lambda one: (one.place, GRADIENTS.index(one.loss.gradient), -left[one][0]))
        order.append(first)
        del left[first]
    return order


def _covers(pairs: Sequence[tuple[Row, Row]]) -> bool:
    """Whether a setting was run in every context with as many fresh seeds as a confirmation needs."""
    seeds: dict[Context, set[int]] = {context: set() for context in CONTEXTS}
    for row, _ in pairs:
        seeds.setdefault(row.context, set()).add(row.seed)
    return all(len(some) >= CONFIRMING for some in seeds.values())


def by_loss(settings: Iterable[Setting]) -> dict[Loss, list[float]]:
    """Loss → places of its settings, the smallest first."""
    found: dict[Loss, list[float]] = {}
    for setting in sorted(settings, key=lambda one: one.place):
        found.setdefault(setting.loss, []).append(setting.place)
    return found
