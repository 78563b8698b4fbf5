"""What an experiment claims, and what the paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One variant is better than another, or two settings have the same effect: what the verdict is about."""

    text: str
    metric: str
    stage: str
    better: str
    than: str
    higher: bool = True
    where: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that must match; a frozenset holds values that all do."""
    minimum_seeds: int = 3
    margin: float | None = None
    """Given: the two do not differ by more than this, in either direction."""
    relative: bool = False
    """The gain, and the margin, is a share of the other side's value."""
    against: Mapping[str, Any] = field(default_factory=dict)
    """Fields in which the other side's configuration differs from ``where``; all else is the same on both sides."""
    than_stage: str = ""
    """The other side's stage, where it is another one."""
    than_metric: str = ""
    """The other side's metric, where it is another one: in the same unit."""
    design: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that tell the design that a claim is of: in another one it was never made, and counts
    for no correction there."""
    paper: float | None = None
    """The gain that the paper prints, where it prints neither side: a share, if ``relative``."""
    fails_below: float | None = None
    """Given: fewer nets of the better side have a metric below this. For accuracies with two humps, whose mean says
    little."""

    @property
    def metrics(self) -> tuple[str, str]:
        """Of either side."""
        return self.metric, self.than_metric or self.metric


@dataclass(frozen=True)
class Paper:
    """A figure that the paper prints."""

    metric: str
    stage: str
    variant: str
    value: float
    spread: float | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
