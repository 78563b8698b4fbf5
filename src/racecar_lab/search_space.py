"""What a search tries: learning rates, coefficients and more, with the same budget for every variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from racecar_lab.training.variants import variant


@dataclass(frozen=True)
class Search:
    """What is tried. A variant with a coefficient tries each of its ``coefficients`` with each of ``lrs``; one without
    tries as many learning rates, spread over the same range. All of this with each combination of ``fields``. An
    experiment that builds on another takes learning rate and coefficient from its search and tries ``fields``."""

    lrs: Mapping[str, tuple[float, ...]]
    """By optimiser."""
    coefficients: Mapping[str, tuple[float, ...]]
    fields: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """More fields of the configuration, such as weight_decay, with what is tried for every variant."""
    own: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Variant → fields that it alone tries, such as Pre's pretrain_lr, with so many coefficients fewer."""
    metric: str = "valid_accuracy"
    higher: bool = True
    """Whether more of it is better."""
    limit: tuple[str, float] | None = None
    """Another metric, an error, and a share: what has more than so much above the smallest that the variant reached is
    not chosen, however good it is otherwise."""
    beside: tuple[str, ...] = ()
    """More metrics that its table of what was tried has."""
    stages: tuple[str, ...] = ("A",)
    """It is averaged over these."""
    apart: bool = False
    """Whether every stage has settings of its own instead, which then come from no other stage of the experiment."""
    valid: float = 0.1
    """Share of the training set held out meanwhile."""
    seeds: int = 3
    first_seed: int = 1000
    """Seeds that no published run uses."""

    @property
    def judged_by(self) -> str:
        """In words."""
        if self.limit is None:
            return self.metric
        name, share = self.limit
        return f"{self.metric} where {name} is within {100 * share:g} % of the smallest"

    @property
    def chosen(self) -> tuple[str, ...]:
        """The fields of the configuration that it chooses."""
        return "lr", *self.fields, *dict.fromkeys(field for fields in self.own.values() for field in fields)

    def candidates(self, name: str, optimiser: str, given: Mapping[str, float] | None = None) -> list[dict[str, float]]:
        """As many settings for every variant; those that the search before chose are ``given``."""
        main = self._main(name, optimiser) if given is None else [dict(given)]
        return [{**one, **others} for one in main for others in _product(self.fields)]

    def beyond(self, name: str, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        """What is tried besides, where the best of a variant lies at an edge of what was tried; nothing, unless a
        search goes on there.

        Args:
            chosen: the settings that were best, and under "tried" all that were, each with its score.
        """
        return []

    def _main(self, name: str, optimiser: str) -> list[dict[str, float]]:
        """Learning rates and coefficients."""
        if optimiser not in self.lrs:
            raise ValueError(f"the search knows no learning rates for {optimiser}, but for {', '.join(self.lrs)}")
        lrs = self.lrs[optimiser]
        alone = {one: _product(self.own.get(one, {})) for one in self.coefficients}
        count = max((len(values) * len(alone[one]) for one, values in self.coefficients.items()), default=1)
        if variant(name).meaning:
            values = self.coefficients.get(name, ())
            if not values:
                raise ValueError(f"the search has no coefficients for {name}, but for {', '.join(self.coefficients)}")
            if len(values) * len(alone[name]) != count:
                tried = f"{len(values) * len(alone[name])} coefficients" + " and fields of its own" * (name in self.own)
                raise ValueError(f"the search gives {name} {tried} and others {count}")
            return [{"lr": lr, "coefficient": value, **more} for value in values for more in alone[name] for lr in lrs]
        low, high, total = min(lrs), max(lrs), len(lrs) * count
        return [{"lr": low * (high / low) ** (i / max(1, total - 1))} for i in range(total)]


def _product(fields: Mapping[str, tuple[float, ...]]) -> list[dict[str, float]]:
    """Every value of each field with every value of the others."""
    return [dict(zip(fields, values, strict=True)) for values in product(*fields.values())]
