"""The rule that makes a verdict of an interval. It was fixed before the runs, and tried on made-up data first."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 3
"""Pairs that a verdict needs."""

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
TOO_FEW, NOT_RUN = "too few runs", "not run"
MIXED = "mixed"
"""Of several claims: the verdicts differ."""
VERDICTS = (SUPPORTED, MIXED, UNDECIDED, CONTRADICTED, TOO_FEW, NOT_RUN)
SIGNS = dict(zip(VERDICTS, "✓◐○✗…–", strict=True))
COLOURS = dict(zip(VERDICTS, ("#14702E", "#7D5200", "#565B61", "#A3241C", "#565B61", "#565B61"), strict=True))

Interval = tuple[float, float]


def verdict(n: int, interval: Interval, minimum: int = FEWEST) -> str:
    """Of a claimed difference.

    Args:
        n: pairs.
        interval: of their mean difference, corrected by Holm's method; positive in the claimed direction.
        minimum: pairs that the claim asks for; never fewer than three.

    Returns:
        Supported if the interval lies above 0, contradicted if it lies below, undecided if it contains 0.
    """
    if n < max(FEWEST, minimum):
        return TOO_FEW
    low, high = interval
    return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED


def equivalence(n: int, interval: Interval, margin: float, minimum: int = FEWEST) -> str:
    """Of two settings that should have the same effect: supported if the corrected interval lies within ±margin,
    contradicted if it lies outside, undecided if an end of the margin is in it."""
    if n < max(FEWEST, minimum):
        return TOO_FEW
    low, high = interval
    if -margin < low and high < margin:
        return SUPPORTED
    return CONTRADICTED if low > margin or high < -margin else UNDECIDED


def agreed(first: str, second: str) -> str:
    """Of two views of the same claim, as with and without nets that died: undecided where they differ."""
    return first if first == second else UNDECIDED


def overall(verdicts: Sequence[str]) -> str:
    """One word for several claims: what was not judged is neither for nor against those that were."""
    judged = [verdict for verdict in verdicts if verdict not in (TOO_FEW, NOT_RUN)]
    if not judged:
        return TOO_FEW if TOO_FEW in verdicts else NOT_RUN
    return judged[0] if len(set(judged)) == 1 else MIXED
