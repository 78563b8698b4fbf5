"""Where in a layer an operation belongs."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What an operation is to the reverse pass, and what the function of its rule does.

    | role | the operation | its function |
    |---|---|---|
    | layer | carries a weight: it makes a layer m | ``(op, y, shape) -> x'``, the transposed weight without the bias |
    | norm, activation | shapes the range of d_m | ``(op, x) -> y``, applied again in the reverse pass |
    | shape | rearranges or crops | ``(op, y, shape) -> x'``, its inverse |
    | resample | changes the resolution (pooling, up-sampling) | ``(op, y, shape) -> x'``, back to the true size |
    | affine | adds or multiplies a constant or parameter | ``(op, y, shape) -> x'`` |
    | pass | changes nothing that matters (dropout, casts) | none |
    | source | starts a way: an embedding's output is the first d | none |
    | select | leaves elements out: straight before a layer the part is its d | as of shape, or none: zeros come back |

    A plan knows three more, for operations that no rule can take back.
    """

    LAYER = "layer"
    NORM = "norm"
    ACTIVATION = "activation"
    SHAPE = "shape"
    RESAMPLE = "resample"
    AFFINE = "affine"
    PASS = "pass"
    SOURCE = "source"
    SELECT = "select"
    JOIN = "join"
    """Of two or more tensors of data."""
    SKIPPED = "skipped"
    """A weight without a rule."""
    UNKNOWN = "unknown"
    """No weight, no rule."""

    @classmethod
    def of_rule(cls, name: str) -> Role:
        """The role of that name; refuses one that no rule can have."""
        allowed = [one for one in cls if one not in (Role.JOIN, Role.SKIPPED, Role.UNKNOWN)]
        if name not in allowed:
            raise ValueError(f"role must be one of {', '.join(allowed)}, not {str(name)!r}")
        return cls(name)

    @property
    def weighted(self) -> bool:
        """Whether it makes a layer, be it one that is left out for want of a rule."""
        return self in (Role.LAYER, Role.SKIPPED)

    @property
    def sets_range(self) -> bool:
        """Whether d_m is what comes out of it: the reverse pass applies it again."""
        return self in (Role.NORM, Role.ACTIVATION)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the function of its rule is called with."""
        return ("op", "x") if self.sets_range else ("op", "y", "shape")

    @property
    def keeps_layout(self) -> bool:
        """Whether every element stays where it is, and meets the same constants when it is applied again."""
        return self.sets_range or self is Role.AFFINE

    @property
    def moves(self) -> bool:
        """Whether it changes layout or resolution."""
        return self in (Role.SHAPE, Role.SELECT, Role.RESAMPLE)

    @property
    def passable(self) -> bool:
        """Whether the reverse pass goes through it between two layers, whatever it is applied to."""
        return self.keeps_layout or self in (Role.SHAPE, Role.RESAMPLE, Role.PASS)
