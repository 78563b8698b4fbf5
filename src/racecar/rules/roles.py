"""The roles that an operation can have in a layer."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The role of an operation in a layer, which decides what the reverse pass does with it.

    | role | the operation | the function of its rule |
    |---|---|---|
    | layer | has a weight: operation m of layer m | ``(op, y, shape) -> x'``, the transposed weight without the bias |
    | norm, activation | determines the range of values of d_m | ``(op, x) -> y``, applied again in the reverse pass |
    | shape | rearranges or crops | ``(op, y, shape) -> x'``, its inverse |
    | resample | changes the resolution (pooling, up-sampling) | ``(op, y, shape) -> x'``, back to the true size |
    | affine | adds or multiplies a constant or parameter | ``(op, y, shape) -> x'`` |
    | pass | is skipped by the reverse pass (dropout, casts) | none |
    | source | has an output that is the first d, such as an embedding | none |
    | select | picks some elements; directly before a layer, these are its d | as for shape, or none: zeros elsewhere |

    Three more roles are for operations that no rule can undo: join, skipped and unknown.
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
    """Combines two or more tensors of data."""
    SKIPPED = "skipped"
    """Has a weight, but no rule."""
    UNKNOWN = "unknown"
    """Has neither a weight nor a rule."""

    weighted: bool
    """Whether an operation of this role is a layer, with or without a rule."""
    sets_range: bool
    """Whether an operation of this role determines the range of d_m: the reverse pass applies it again."""
    keeps_layout: bool
    """Whether an operation of this role leaves every element in its place."""
    moves: bool
    """Whether an operation of this role changes layout or resolution."""
    passable: bool
    """Whether the reverse pass can go through every operation of this role between two layers."""

    def __init__(self, name: str) -> None:
        self.weighted = name in ("layer", "skipped")
        self.sets_range = name in ("norm", "activation")
        self.keeps_layout = self.sets_range or name == "affine"
        self.moves = name in ("shape", "select", "resample")
        self.passable = self.keeps_layout or name in ("shape", "resample", "pass")

    @classmethod
    def of_rule(cls, name: str) -> Role:
        """The role called ``name``; a ValueError if no rule can have it."""
        allowed = [role for role in cls if role not in (Role.JOIN, Role.SKIPPED, Role.UNKNOWN)]
        if name not in allowed:
            raise ValueError(f"role must be one of {', '.join(allowed)}, not {str(name)!r}")
        return cls(name)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the function of a rule of this role."""
        return ("op", "x") if self.sets_range else ("op", "y", "shape")
