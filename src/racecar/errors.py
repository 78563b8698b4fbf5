"""What can go wrong in ways that a user can mend."""

from __future__ import annotations


class NotReversible(ValueError):
    """The reverse pass from output to input is not unique, so the asked-for mode cannot work on this model."""


class NothingToReverse(ValueError):
    """The model has no layer that the reverse pass could constrain."""


class RuleError(ValueError):
    """A rule broke its promise, for example by returning a tensor of the wrong shape."""


class Unsupported(TypeError):
    """A kind of model or set-up in which the reverse pass would be wrong, refused with the remedy."""


class NoRuleWarning(UserWarning):
    """An operation has no rule, so a layer is skipped or the reverse pass starts again after it."""


class DeadLayerWarning(UserWarning):
    """A constrained layer shows nothing for several steps: its activation is 0, or its term is 0 or not finite."""


class MissingExtra(ImportError):
    """An optional package is not installed; the message names the extra that brings it."""
