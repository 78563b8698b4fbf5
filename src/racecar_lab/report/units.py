"""Units of gains: points of accuracy, per cent, or the unit of the metric."""

from __future__ import annotations

import re
from typing import NamedTuple

from racecar_lab.experiment import Claim

_SHARES = re.compile(r"accuracy|_within$|^(probe|tune|auroc)_")
_NAMES = {"psnr(_scaled)?": "dB", "ssim(_scaled)?": "SSIM", "test_l2": "L2"}


class Unit(NamedTuple):
    """A unit; a gain is multiplied by ``factor``."""

    name: str
    factor: float = 1.0


def unit(claim: Claim) -> Unit:
    """The unit of a claim's gain."""
    if claim.relative:
        return Unit("%", 100.0)
    if _SHARES.search(claim.metric):
        return Unit("points", 100.0)
    names = (name for pattern, name in _NAMES.items() if re.fullmatch(pattern, claim.metric))
    return Unit(next(names, claim.metric))
