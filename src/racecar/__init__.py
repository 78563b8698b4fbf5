"""Racecar training: networks whose features generalise, and that people can look into."""

from racecar import functional, rules
from racecar.errors import NoRuleWarning, NothingToReverse, NotReversible, RuleError, Unsupported
from racecar.racecar import Racecar

__version__ = "0.1.0"
__all__ = [
    "NoRuleWarning",
    "NotReversible",
    "NothingToReverse",
    "Racecar",
    "RuleError",
    "Unsupported",
    "functional",
    "rules",
]
