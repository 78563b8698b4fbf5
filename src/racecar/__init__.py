"""Racecar training: networks whose features generalise, and that people can look into."""

from racecar import functional, orthogonality, rules
from racecar.errors import MissingExtra, NoRuleWarning, NothingToReverse, NotReversible, RuleError, Unsupported
from racecar.racecar import Racecar
from racecar.schedule import Every

__version__ = "0.1.0"
__all__ = [
    "Every",
    "MissingExtra",
    "NoRuleWarning",
    "NotReversible",
    "NothingToReverse",
    "Racecar",
    "RuleError",
    "Unsupported",
    "functional",
    "orthogonality",
    "rules",
]
