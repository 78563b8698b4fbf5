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
    """The variant that is better."""
    than: str
    """The variant that it is compared with: the other side."""
    higher: bool = True
    """True if a higher value of the metric is better."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Values that fields of the configuration must have; a frozenset stands for any of its values."""
    minimum_seeds: int = 3
    margin: float | None = None
    """If not None, the claim is that the two sides differ by at most this much, in either direction."""
    relative: bool = False
    """True if the gain and the margin are shares of the other side's value."""
    against: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields in which the other side's configuration differs from ``where``; all other fields are equal."""
    than_stage: str = ""
    """The other side's stage, if it differs."""
    than_metric: str = ""
    """The other side's metric, if it differs; in the same unit."""
    design: Mapping[str, Any] = field(default_factory=dict)
    """Values of the configuration fields that identify the design. A claim holds for this design alone, and does not
    count in the correction for multiple tests of another one."""
    paper: float | None = None
    """The gain that the paper prints, if it prints neither side's value; a share if ``relative``."""
    fails_below: float | None = None
    """If not None, the claim is that fewer nets of the better side have a metric below this value: for accuracies with
    two modes, whose mean says little."""

    @property
    def metrics(self) -> tuple[str, str]:
        """The metric of each side."""
        return self.metric, self.than_metric or self.metric


@dataclass(frozen=True)
class Paper:
    """A number that the paper prints."""

    metric: str
    stage: str
    variant: str
    value: float
    spread: float | None = None
    """The ± that the paper prints."""
    where: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
