"""What a search tries: learning rates and coefficients, with the same budget for every variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from racecar.lab.training.variants import variant


@dataclass(frozen=True)
class Search:
    """What is tried. A variant with a coefficient tries each of its ``coefficients`` with each of ``lrs``; one without
    tries as many learning rates, spread over the same range."""

    lrs: Mapping[str, tuple[float, ...]]
    """By optimiser."""
    coefficients: Mapping[str, tuple[float, ...]]
    metric: str = "valid_accuracy"
    stages: tuple[str, ...] = ("A",)
    """The metric is averaged over these."""
    valid: float = 0.1
    """Share of the training set held out meanwhile."""
    seeds: int = 3
    first_seed: int = 1000
    """Seeds that no published run uses."""

    def candidates(self, name: str, optimiser: str) -> list[dict[str, float]]:
        """As many settings for every variant."""
        if optimiser not in self.lrs:
            raise ValueError(f"the search knows no learning rates for {optimiser}, but for {', '.join(self.lrs)}")
        lrs = self.lrs[optimiser]
        count = max(map(len, self.coefficients.values()), default=1)
        if variant(name).meaning:
            values = self.coefficients.get(name, ())
            if not values:
                raise ValueError(f"the search has no coefficients for {name}, but for {', '.join(self.coefficients)}")
            if len(values) != count:
                raise ValueError(f"the search gives {name} {len(values)} coefficients and others {count}")
            return [{"lr": lr, "coefficient": value} for value in values for lr in lrs]
        low, high, total = min(lrs), max(lrs), len(lrs) * count
        return [{"lr": low * (high / low) ** (i / max(1, total - 1))} for i in range(total)]
