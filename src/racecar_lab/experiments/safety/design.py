"""Which nets the safety map trains: losses × λ, each in nine contexts that cover all there are.

A loss is written "gradient:scale:mode", with ":body" behind it if the classifier is not constrained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from racecar_lab.config import Config, guide, guides

Gradient = Literal["reverse", "weights", "both"]
"""The part of a term that gets a gradient; the cheaper one first."""
Scale = Literal["relative", "ratio", "anchored", "mean", "sum"]
Mode = Literal["full", "layerwise", "input"]
Depth = Literal[3, 6, 12]
Start = Literal["torch", "he", "orthogonal"]
Norm = Literal["none", "batch", "group"]
GRADIENTS, SCALES, DEPTHS = get_args(Gradient), get_args(Scale), get_args(Depth)
STARTS, NORMS, LRS = get_args(Start), get_args(Norm), (1e-3, 3e-3)
LAMBDAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SUMMED = 1e4
"""A sum over batch and features is about so many times a mean of it: λ of scale "sum" is divided by this."""
LOSSES = (
    *(
        f"{gradient}:{scale}:{mode}"
        for gradient, scale, mode in product(("both", "reverse", "weights"), SCALES, ("full", "layerwise"))
        if gradient == "both" or scale != "ratio"  # where d is a constant, "ratio" is "relative"
    ),
    *(f"{gradient}:relative:input" for gradient in ("both", "reverse", "weights")),
    *(
        f"{gradient}:{scale}:{mode}:body"
        for gradient, scale, mode in product(GRADIENTS, ("relative", "anchored"), ("full", "layerwise"))
        if (gradient, scale) != ("both", "anchored")
    ),
)


class Context(NamedTuple):
    """The net, first weights and step size that a user brings along."""

    depth: int
    start: str
    norm: str
    lr: float


CONTEXTS = tuple(Context(*levels) for levels in product(DEPTHS, STARTS, NORMS, LRS))
Setting = tuple[str, float]
"""A loss and a λ of the grid, its place on the axis that all losses share."""


def true_lambda(setting: Setting) -> float:
    """The λ that a net of a setting is trained with."""
    loss, place = setting
    return place / SUMMED if ":sum:" in loss else place


def name_of(setting: Setting) -> str:
    """A setting in words, with the true λ."""
    return f"{setting[0].replace(':', ' · ')}, λ = {true_lambda(setting):g}"


def covering(setting: Setting) -> list[Context]:
    """The nine contexts of one setting: every pair of levels of depth, start and norm once.

    The array moves on from one λ of the grid to the next, so that three neighbours have all 27 triples, and after three
    of them the step sizes change sides: over the grid every loss meets each of the 54 contexts.
    """
    which, i = LOSSES.index(setting[0]), LAMBDAS.index(setting[1])
    contexts = []
    for a, b in product(range(3), range(3)):
        fourth = (a + 2 * b + i + which) % 3  # its levels, too, stand with every level of the others once
        large = (fourth == 1 or (fourth == 2 and which % 2 == 1)) != (i // 3 % 2 == 1)
        contexts.append(Context(DEPTHS[a], STARTS[b], NORMS[(a + b + i + which) % 3], LRS[large]))
    return contexts


def settings_of(text: str, places: Sequence[float] = LAMBDAS) -> list[Setting]:
    """The settings that a loss names, one for each of ``places``; with ":λ" behind it, the one."""
    loss, _, last = text.rpartition(":")
    if not last[:1].isdigit():
        loss, last = text, ""
    if loss not in LOSSES:
        raise ValueError(f"losses: {text!r} is none of the map's, with or without :λ behind it: {', '.join(LOSSES)}")
    grid = {f"{place:g}": place for place in LAMBDAS}
    if last and last not in grid:
        known = ", ".join(grid)
        raise ValueError(f"losses: λ in {text!r} must be one of {known} (for scale sum: {SUMMED:g} times the true one)")
    return [(loss, place) for place in ((grid[last],) if last else places)]


@dataclass(frozen=True, kw_only=True)
class SafetyConfig(Config):
    """Which nets the map has, and how each of them is trained."""

    unnamed: ClassVar[Mapping[str, Any]] = {**Config.unnamed, "scale": "relative"}
    design: Literal["cover", "confirm", "one"] = guide("cover")
    """"cover": the map; "confirm": the settings in ``losses`` in every context; "one": the net that the fields from
    ``mode`` on describe."""
    losses: tuple[str, ...] = guide(())
    """Of the design: each gradient:scale:mode, or gradient:scale:mode:λ; none: all of the map."""
    lams: tuple[float, ...] = guide(LAMBDAS)
    """Of the design, on the axis that all losses share: for scale "sum" 10,000 times the true λ."""
    depths: tuple[int, ...] = guide(DEPTHS)
    starts: tuple[str, ...] = guide(STARTS)
    norms: tuple[str, ...] = guide(NORMS)
    lrs: tuple[float, ...] = guide(LRS)
    mode: Literal["none", Mode] = "layerwise"
    gradient: Literal["none", Gradient] = "both"
    scale: Literal["none", Scale] = "relative"
    layers: Literal["all", "body"] = "all"
    """Which are constrained: "all", or "body", all but the classifier."""
    lam: float = 0.1
    """The true λ."""
    depth: Depth = 3
    """Convolutions, in three blocks."""
    start: Start = "torch"
    """First weights of the convolutions."""
    norm: Norm = "none"
    """After every convolution."""
    lr: float = 1e-3
    images: int = 2048
    """That the source is trained on."""
    epochs: int = 6
    batch: int = 64
    labels: tuple[int, ...] = (10, 50)
    """Per class of the new task."""
    draws: int = 3
    """Sets of labelled pictures over which the probe is averaged."""
    l2: float = 1e-2
    """Of the probe, a ridge regression on features of mean squared length 1."""
    tests: int = 2000
    """Pictures of each task's test set that are looked at; 0: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, every in (("lams", LAMBDAS), ("depths", DEPTHS), ("starts", STARTS), ("norms", NORMS), ("lrs", LRS)):
            if not getattr(self, name) or not set(getattr(self, name)) <= set(every):
                raise ValueError(f"{name} must be some of {', '.join(map(str, every))}, not {getattr(self, name)!r}")
        if len({value == "none" for value in (self.mode, self.gradient, self.scale)}) > 1:
            raise ValueError("mode, gradient and scale are all none, for plain training, or none of them is")
        self.refuse_negative("lam", "tests")
        if not self.labels or min(self.labels) < 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be numbers of at least 1, each once, not {self.labels!r}")
        for name in ("images", "draws", "l2"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")


PLAIN = {"mode": "none", "gradient": "none", "scale": "none", "layers": "all", "lam": 0.0}
OWN = (*PLAIN, *Context._fields)
"""Fields that a design gives each net."""
GUIDES = tuple(sorted(guides(SafetyConfig) - {"design"}))
"""Fields that a design is made of; no net depends on them."""


def fields_of(setting: Setting) -> dict[str, Any]:
    """A setting as fields of the configuration."""
    gradient, scale, mode, *layers = setting[0].split(":")
    names = {"gradient": gradient, "scale": scale, "mode": mode, "layers": layers[0] if layers else "all"}
    return {**names, "lam": true_lambda(setting)}


def designed(config: SafetyConfig) -> list[SafetyConfig]:
    """The configurations that a design asks for: plain twins, then the nets of every setting."""
    usual, single = SafetyConfig(), config.design == "one"
    for name in GUIDES if single else OWN:
        if getattr(config, name) != getattr(usual, name):
            why = "that is for a design" if single else "the design gives each net its own; add design=one"
            raise ValueError(f"{name} with design={config.design}: {why}")
    if single:
        return [config]
    confirms = config.design == "confirm"
    if confirms and not all(text.split(":")[-1][:1].isdigit() for text in config.losses or ("",)):
        raise ValueError("design=confirm needs losses with their λ, as losses=reverse:relative:layerwise:0.1")
    places = [place for place in LAMBDAS if place in config.lams]
    levels = (config.depths, config.starts, config.norms, config.lrs)
    nets = [
        (setting, context)
        for text in config.losses or LOSSES
        for setting in settings_of(text, places)
        for context in (CONTEXTS if confirms else covering(setting))
        if all(level in known for level, known in zip(context, levels, strict=True))
    ]
    needed = {context for _, context in nets}
    twins = [{**PLAIN, **context._asdict()} for context in CONTEXTS if context in needed]
    base = replace(config, design="one", **{name: getattr(usual, name) for name in GUIDES})
    changes = [*twins, *({**fields_of(setting), **context._asdict()} for setting, context in nets)]
    return [replace(base, **change) for change in changes]
