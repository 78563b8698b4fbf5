"""Exceptions and warnings that a user of racecar may see; each message says what to do."""

from __future__ import annotations


class NotReversible(ValueError):
    """Error: the reverse pass from output to input is not unique, so this mode does not work on this model."""


class NothingToReverse(ValueError):
    """Error: the model has no layer that the racecar loss could constrain."""


class RuleError(ValueError):
    """Error: a layer's rule did not return what it must, for example a tensor of the wrong shape."""


class Unsupported(TypeError):
    """Error: the reverse pass would be wrong in this model or set-up; the message says what to use instead."""


class NoRuleWarning(UserWarning):
    """Warning: an operation has no rule, so its layer is skipped or the reverse pass starts again after it."""


class DeadLayerWarning(UserWarning):
    """Warning: a constrained layer has looked dead for several steps: its activation or term is 0, or not finite."""


class MissingExtra(ImportError):
    """Error: an optional package is not installed; the message names the extra that installs it."""
