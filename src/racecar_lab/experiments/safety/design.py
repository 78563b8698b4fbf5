"""Which nets the safety map trains: losses × λ, each in nine contexts that cover all there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple, get_args

Gradient = Literal["reverse", "weights", "both"]
"""What of a term gets a gradient; the cheaper one first."""
Scale = Literal["relative", "ratio", "anchored", "mean", "sum"]
Mode = Literal["full", "layerwise", "input"]
Layers = Literal["all", "body"]
"""Which are constrained: all, or all but the classifier."""
Depth = Literal[3, 6, 12]
Start = Literal["torch", "he", "orthogonal"]
Norm = Literal["none", "batch", "group"]
GRADIENTS, SCALES, MODES = get_args(Gradient), get_args(Scale), get_args(Mode)
LAYERS, DEPTHS, STARTS, NORMS = get_args(Layers), get_args(Depth), get_args(Start), get_args(Norm)
LAMBDAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SUMMED = 1e4
"""A sum over batch and features is about so many times a mean of it: λ of scale "sum" is divided by this."""
LRS = (1e-3, 3e-3)


class Loss(NamedTuple):
    """One reverse loss, before its λ."""

    gradient: str
    scale: str
    mode: str
    layers: str = "all"

    def __str__(self) -> str:
        return " · ".join(self[:3]) + (" · body" if self.layers == "body" else "")


class Context(NamedTuple):
    """What a user brings along: the net, its first weights and its step size."""

    depth: int
    start: str
    norm: str
    lr: float


class Setting(NamedTuple):
    """A loss and its place on the axis of λ that all losses share."""

    loss: Loss
    place: float

    @property
    def lam(self) -> float:
        """The true λ."""
        return self.place / SUMMED if self.loss.scale == "sum" else self.place

    def __str__(self) -> str:
        return f"{self.loss}, λ = {self.lam:g}"

    @property
    def spelling(self) -> str:
        """As ``--set losses=`` takes it."""
        names = self.loss if self.loss.layers == "body" else self.loss[:3]
        return ":".join((*names, f"{self.place:g}"))


LOSSES = (
    *(
        Loss(gradient, scale, mode)
        for gradient, scale, mode in product(("both", "reverse", "weights"), SCALES, ("full", "layerwise"))
        if gradient == "both" or scale != "ratio"  # where d is a constant, "ratio" is "relative"
    ),
    *(Loss(gradient, "relative", "input") for gradient in ("both", "reverse", "weights")),
    *(
        Loss(gradient, scale, mode, "body")
        for gradient, scale, mode in product(GRADIENTS, ("relative", "anchored"), ("full", "layerwise"))
        if (gradient, scale) != ("both", "anchored")
    ),
)
CONTEXTS = tuple(Context(*one) for one in product(DEPTHS, STARTS, NORMS, LRS))


def place_of(scale: str, lam: float) -> float:
    """Where a true λ stands on the common axis: the value of the grid, if it is one."""
    place = lam * SUMMED if scale == "sum" else lam
    return min((one for one in LAMBDAS if abs(one - place) < 1e-6 * one), default=place)


def covering(setting: Setting) -> Iterator[Context]:
    """The nine contexts of one setting: every pair of levels of depth, start and norm once.

    The array moves on from one λ of the grid to the next, so that three neighbours have all 27 triples, and after three
    of them the step sizes change sides: over the grid every loss meets each of the 54 contexts.
    """
    i, which = LAMBDAS.index(setting.place), LOSSES.index(setting.loss)
    for a, b in product(range(3), range(3)):
        fourth = (a + 2 * b + i + which) % 3  # its levels, too, stand with every level of the others once
        large = (fourth == 1 or (fourth == 2 and which % 2 == 1)) != (i // 3 % 2 == 1)
        yield Context(DEPTHS[a], STARTS[b], NORMS[(a + b + i + which) % 3], LRS[large])


def parse_setting(text: str, places: Sequence[float] = LAMBDAS) -> list[Setting]:
    """The settings that "gradient:scale:mode" names, ":body" behind it for all layers but the classifier, one for each
    of ``places``; with ":λ" behind it, the one."""
    *parts, last = text.split(":")
    names, lam = (parts, last) if last[:1].isdigit() else ([*parts, last], "")
    if not 3 <= len(names) <= 4 or Loss(*names) not in LOSSES:
        known = ", ".join(":".join(one[:3] if one.layers == "all" else one) for one in LOSSES)
        raise ValueError(f"losses: {text!r} is none of the map's, with or without :λ behind it: {known}")
    if not lam:
        return [Setting(Loss(*names), place) for place in places]
    if lam not in [f"{place:g}" for place in LAMBDAS]:
        grid = ", ".join(f"{place:g}" for place in LAMBDAS)
        raise ValueError(f"losses: λ in {text!r} must be one of {grid} (for scale sum: {SUMMED:g} times the true one)")
    return [Setting(Loss(*names), float(lam))]
