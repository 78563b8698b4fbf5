"""Rules: what the reverse pass does with each kind of operation. One file per family, one registry for all."""

from racecar.rules import activation, conv, fallback, join, linear, norm, pool, sample_norm, several, shape
from racecar.rules.operation import Operation
from racecar.rules.registry import Rule, find, register, unregister
from racecar.rules.roles import Role

__all__ = ["Operation", "Role", "Rule", "find", "register", "unregister"]
_FAMILIES = (linear, conv, norm, sample_norm, activation, pool, shape, join, several, fallback)
