"""The rules by which intervals become verdicts. They were fixed before the runs, after tests on made-up data."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 3
"""Minimal number of pairs for a verdict."""

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
TOO_FEW, NOT_RUN = "too few runs", "not run"
MIXED = "mixed"
"""The overall verdict of several claims whose verdicts differ."""
VERDICTS = (SUPPORTED, MIXED, UNDECIDED, CONTRADICTED, TOO_FEW, NOT_RUN)
SIGNS = dict(zip(VERDICTS, "✓◐○✗…–", strict=True))
COLOURS = dict(zip(VERDICTS, ("#14702E", "#7D5200", "#565B61", "#A3241C", "#565B61", "#565B61"), strict=True))

Interval = tuple[float, float]


def verdict(n: int, interval: Interval, minimum: int = FEWEST) -> str:
    """The verdict on a claimed difference.

    Args:
        n: number of pairs.
        interval: confidence interval of their mean difference, corrected by Holm's method; positive in the claimed
            direction.
        minimum: number of pairs that the claim asks for, if it is more than ``FEWEST``.

    Returns:
        Supported if the interval lies above 0, contradicted if it lies below, undecided if it contains 0.
    """
    if n < max(FEWEST, minimum):
        return TOO_FEW
    low, high = interval
    return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED


def equivalence(n: int, interval: Interval, margin: float, minimum: int = FEWEST) -> str:
    """The verdict on two settings that should have the same effect: supported if the corrected interval lies within
    ±margin, contradicted if it lies outside, undecided if it contains an end of the margin."""
    if n < max(FEWEST, minimum):
        return TOO_FEW
    low, high = interval
    if -margin < low and high < margin:
        return SUPPORTED
    return CONTRADICTED if low > margin or high < -margin else UNDECIDED


def agreed(first: str, second: str) -> str:
    """The verdict from two analyses of a claim, such as with and without dead nets: undecided if they differ."""
    return first if first == second else UNDECIDED


def overall(verdicts: Sequence[str]) -> str:
    """The verdict on several claims together; those without a verdict are ignored, if others have one."""
    judged = [verdict for verdict in verdicts if verdict not in (TOO_FEW, NOT_RUN)]
    if not judged:
        return TOO_FEW if TOO_FEW in verdicts else NOT_RUN
    return judged[0] if len(set(judged)) == 1 else MIXED
