"""In what a gain is told: points of accuracy, per cent, or what the metric itself is in."""

from __future__ import annotations

import re
from typing import NamedTuple

from racecar_lab.experiment import Claim

_SHARES = re.compile(r"accuracy|_within$|^(probe|tune|auroc)_")
_NAMES = {"psnr(_scaled)?": "dB", "ssim(_scaled)?": "SSIM", "test_l2": "L2"}


class Unit(NamedTuple):
    """A gain times the factor is in this unit."""

    name: str
    factor: float = 1.0


def unit(claim: Claim) -> Unit:
    """Of a claim's gain."""
    if claim.relative:
        return Unit("%", 100.0)
    if _SHARES.search(claim.metric):
        return Unit("points", 100.0)
    known = (name for pattern, name in _NAMES.items() if re.fullmatch(pattern, claim.metric))
    return Unit(next(known, claim.metric))
