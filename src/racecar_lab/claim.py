"""Claims of an experiment, which are tested, and numbers that the paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A claim that one variant is better than another, or that two settings have the same effect. A verdict on it is
    computed from the records."""

    text: str
    metric: str
    stage: str
    better: str
    """Name of the variant that is claimed to be better."""
    than: str
    """Name of the variant that ``better`` is compared with: the other side of the claim."""
    higher: bool = True
    """True if a higher value of the metric is better."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Values that fields of the configuration must have; a frozenset stands for any of its values. The claim is tested
    on the runs that have them."""
    minimum_seeds: int = 3
    margin: float | None = None
    """If not None, the claim is that the metrics of the two sides differ by at most this much, in either direction."""
    relative: bool = False
    """True if the gain (how much better the better side is) and the margin are shares of the other side's value."""
    against: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields in which the configuration of the side ``than`` differs from ``where``; all its other fields are
    equal."""
    than_stage: str = ""
    """Stage in which the side ``than`` is measured; empty: the same stage as for ``better``."""
    than_metric: str = ""
    """Metric of the side ``than``, in the same unit; empty: the same metric as for ``better``."""
    design: Mapping[str, Any] = field(default_factory=dict)
    """Values of the configuration fields that identify a design, where an experiment has several. The claim is tested
    on the runs of this design alone, and Holm's correction for multiple tests does not count the claims of other
    designs."""
    paper: float | None = None
    """The gain that the paper prints, where it does not print the values of the two sides; a share of the other side's
    value if ``relative``. None: it prints no gain."""
    fails_below: float | None = None
    """If not None, the claim is that fewer nets of ``better`` than of ``than`` have a metric below this value: for
    accuracies with two modes, whose mean says little."""

    @property
    def metrics(self) -> tuple[str, str]:
        """Names of the metrics of the two sides, first that of ``better``."""
        return self.metric, self.than_metric or self.metric


@dataclass(frozen=True)
class Paper:
    """A number that the paper prints: a metric of one variant after one stage."""

    metric: str
    stage: str
    variant: str
    value: float
    spread: float | None = None
    """The number that the paper prints after ±; None: it prints none."""
    where: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
