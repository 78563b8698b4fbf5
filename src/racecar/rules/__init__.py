"""What the reverse of one kind of operation is: one file per family, one registry."""

from racecar.rules import activation, conv, fallback, join, linear, norm, pool, sample_norm, several, shape
from racecar.rules.operation import Operation
from racecar.rules.registry import Rule, find, register, unregister
from racecar.rules.roles import Role

__all__ = ["Operation", "Role", "Rule", "find", "register", "unregister"]
_FAMILIES = (linear, conv, norm, sample_norm, activation, pool, shape, join, several, fallback)
