"""The rules by which confidence intervals of gains become verdicts on claims. They were fixed before the runs, after
tests on made-up data."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 3
"""Minimal number of pairs (runs of both sides with the same seed, or clusters of them) for a verdict."""

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
TOO_FEW, NOT_RUN = "too few runs", "not run"
MIXED = "mixed"
"""The overall verdict of several claims whose verdicts differ."""
VERDICTS = (SUPPORTED, MIXED, UNDECIDED, CONTRADICTED, TOO_FEW, NOT_RUN)
SIGNS = dict(zip(VERDICTS, "✓◐○✗…–", strict=True))
COLOURS = dict(zip(VERDICTS, ("#14702E", "#7D5200", "#565B61", "#A3241C", "#565B61", "#565B61"), strict=True))


def verdict(n: int, interval: tuple[float, float] | None, minimum: int = FEWEST, margin: float | None = None) -> str:
    """The verdict on a claimed difference, or with a margin on two settings that should have the same effect.

    Args:
        n: number of pairs.
        interval: confidence interval of their mean difference, corrected by Holm's method; positive in the claimed
            direction.
        minimum: number of pairs that the claim asks for, if it is more than ``FEWEST``.
        margin: largest difference of two settings that have the same effect.

    Returns:
        Supported if the interval lies above 0 (with a margin: within ±margin), contradicted if it lies below 0 (outside
        ±margin), undecided if it contains 0 (an end of the margin).
    """
    if interval is None or n < max(FEWEST, minimum):
        return TOO_FEW
    low, high = interval
    if margin is None:
        return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED
    if -margin < low and high < margin:
        return SUPPORTED
    return CONTRADICTED if low > margin or high < -margin else UNDECIDED


def overall(verdicts: Sequence[str]) -> str:
    """The verdict on several claims together; those without a verdict are ignored, if others have one."""
    decided = [verdict for verdict in verdicts if verdict not in (TOO_FEW, NOT_RUN)]
    if not decided:
        return TOO_FEW if TOO_FEW in verdicts else NOT_RUN
    return decided[0] if len(set(decided)) == 1 else MIXED
