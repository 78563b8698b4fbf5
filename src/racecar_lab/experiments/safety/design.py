"""The nets of the safety map: every reverse loss at every λ, each in nine contexts that have all pairs of depth, start
and norm.

A loss is written "gradient:scale:mode", with ":body" at the end if the classifier has no reverse loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from racecar_lab.config import Config, guide, guides

Gradient = Literal["reverse", "weights", "both"]
"""The part of a term of the reverse loss that its gradient reaches: the rebuilt d' ("reverse"), the weights alone
("weights"), or d and d' ("both"); from the cheapest to the dearest."""
Scale = Literal["relative", "ratio", "anchored", "mean", "sum"]
Mode = Literal["full", "layerwise", "input"]
Depth = Literal[3, 6, 12]
Start = Literal["torch", "he", "orthogonal"]
Norm = Literal["none", "batch", "group"]
GRADIENTS, SCALES, DEPTHS = get_args(Gradient), get_args(Scale), get_args(Depth)
STARTS, NORMS, LRS = get_args(Start), get_args(Norm), (1e-3, 3e-3)
LAMBDAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SUMMED = 1e4
"""Number by which λ is divided for scale "sum": about the ratio of a sum over batch and features to its mean."""
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
    """Choices of a user with which a reverse loss must be safe: net (depth, norm), initial weights and learning
    rate."""

    depth: int
    start: str
    norm: str
    lr: float


CONTEXTS = tuple(Context(*levels) for levels in product(DEPTHS, STARTS, NORMS, LRS))
Setting = tuple[str, float]
"""A reverse loss, such as "both:relative:full", and its place: λ on the grid that all losses share."""


def true_lambda(setting: Setting) -> float:
    """The λ that nets of a setting are trained with: its place on the grid, for scale "sum" divided by ``SUMMED``."""
    loss, place = setting
    return place / SUMMED if ":sum:" in loss else place


def name_of(setting: Setting) -> str:
    """A setting in words, with the λ that its nets are trained with."""
    return f"{setting[0].replace(':', ' · ')}, λ = {true_lambda(setting):g}"


def covering(setting: Setting) -> list[Context]:
    """The nine contexts (depth, start, norm, learning rate) in which nets of one setting are trained: an orthogonal
    array, with every pair of levels of depth, start and norm once.

    The array shifts from one λ of the grid to the next, so that three neighbours have all 27 triples. After three the
    learning rates are swapped, so that over the grid every loss has each of the 54 contexts.
    """
    loss_index, place_index = LOSSES.index(setting[0]), LAMBDAS.index(setting[1])
    contexts = []
    for a, b in product(range(3), range(3)):
        fourth = (a + 2 * b + place_index + loss_index) % 3  # a fourth column of the array
        large = (fourth == 1 or (fourth == 2 and loss_index % 2 == 1)) != (place_index // 3 % 2 == 1)
        norm = NORMS[(a + b + place_index + loss_index) % 3]
        contexts.append(Context(DEPTHS[a], STARTS[b], norm, LRS[large]))
    return contexts


def settings_of(text: str, places: Sequence[float] = LAMBDAS) -> list[Setting]:
    """The settings that a text stands for: the loss "both:relative:full" for one at each of ``places``,
    "both:relative:full:0.1" for the one with this λ alone."""
    loss, _, last = text.rpartition(":")
    if not last[:1].isdigit():
        loss, last = text, ""
    if loss not in LOSSES:
        raise ValueError(
            f"losses: {text!r} is none of the map's losses, with or without :λ at the end: {', '.join(LOSSES)}"
        )
    grid = {f"{place:g}": place for place in LAMBDAS}
    if last and last not in grid:
        known = ", ".join(grid)
        raise ValueError(f"losses: λ in {text!r} must be one of {known} (for scale sum: {SUMMED:g} times the true one)")
    return [(loss, place) for place in ((grid[last],) if last else places)]


@dataclass(frozen=True, kw_only=True)
class SafetyConfig(Config):
    """Settings of the safety map: the nets that it has, and how each of them is trained."""

    unnamed: ClassVar[Mapping[str, Any]] = {**Config.unnamed, "scale": "relative"}
    stackable = (*Config.stackable, "start", "weight")
    design: Literal["cover", "confirm", "one"] = guide("cover")
    """Choice of the nets. "cover": the map; "confirm": the settings in ``losses`` in every context; "one": the single
    net that the fields from ``mode`` on describe."""
    losses: tuple[str, ...] = guide(())
    """Reverse losses of the map's nets, each written gradient:scale:mode, or, for a single λ, gradient:scale:mode:λ;
    empty: all of the map."""
    weights: tuple[float, ...] = guide(LAMBDAS)
    """λs with which the map has each loss, on the grid that all losses share: for scale "sum" 10,000 times the true
    λ."""
    depths: tuple[int, ...] = guide(DEPTHS)
    starts: tuple[str, ...] = guide(STARTS)
    norms: tuple[str, ...] = guide(NORMS)
    lrs: tuple[float, ...] = guide(LRS)
    mode: Literal["none", Mode] = "layerwise"
    gradient: Literal["none", Gradient] = "both"
    scale: Literal["none", Scale] = "relative"
    layers: Literal["all", "body"] = "all"
    """Layers that have a reverse loss: "all", or "body", which is all but the classifier."""
    weight: float = 0.1
    """λ that the net is trained with."""
    depth: Depth = 3
    """Number of convolutions in three blocks."""
    start: Start = "torch"
    """Initial weights of the convolutions: PyTorch's own, He's, or orthogonal ones."""
    norm: Norm = "none"
    """Norm after every convolution."""
    lr: float = 1e-3
    images: int = 2048
    """Number of training pictures of the source task."""
    epochs: int = 6
    batch: int = 64
    labels: tuple[int, ...] = (10, 50)
    """Numbers of labelled pictures per class; the new task is learned with each of them by itself."""
    draws: int = 3
    """Number of random sets of labelled pictures over which the accuracy of the probe is averaged."""
    l2: float = 1e-2
    """Penalty of the linear probe, a ridge regression on features of mean squared length 1."""
    tests: int = 2000
    """Number of test pictures of each task; 0: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        grids = {"weights": LAMBDAS, "depths": DEPTHS, "starts": STARTS, "norms": NORMS, "lrs": LRS}
        for name, levels in grids.items():
            if not getattr(self, name) or not set(getattr(self, name)) <= set(levels):
                raise ValueError(f"{name} must be some of {', '.join(map(str, levels))}, not {getattr(self, name)!r}")
        if len({value == "none" for value in (self.mode, self.gradient, self.scale)}) > 1:
            raise ValueError("mode, gradient and scale are all none, for plain training, or none of them is")
        self.refuse_negative("weight", "tests")
        if not self.labels or min(self.labels) < 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be numbers of at least 1, each once, not {self.labels!r}")
        for name in ("images", "draws", "l2"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")


PLAIN = {"mode": "none", "gradient": "none", "scale": "none", "layers": "all", "weight": 0.0}
"""Field → its value for a plain net, which is trained without a reverse loss."""
NET_FIELDS = (*PLAIN, *Context._fields)
"""Names of the configuration's fields that the design sets for each net."""
GUIDES = tuple(sorted(guides(SafetyConfig) - {"design"}))
"""Names of the configuration's fields that say which nets the map has; no net depends on them."""


def fields_of(setting: Setting) -> dict[str, Any]:
    """Field → value, for the fields of a net's configuration that a setting defines."""
    gradient, scale, mode, *layers = setting[0].split(":")
    names = {"gradient": gradient, "scale": scale, "mode": mode, "layers": layers[0] if layers else "all"}
    return {**names, "weight": true_lambda(setting)}


def design_configs(config: SafetyConfig) -> list[SafetyConfig]:
    """Configurations of all nets to train: first plain twins, nets without a reverse loss in every context that is
    needed, then the nets of every setting."""
    default, single = SafetyConfig(), config.design == "one"
    for name in GUIDES if single else NET_FIELDS:
        if getattr(config, name) != getattr(default, name):
            why = "this field is for a design" if single else "the design sets this field for each net; add design=one"
            raise ValueError(f"{name} with design={config.design}: {why}")
    if single:
        return [config]
    confirms = config.design == "confirm"
    if confirms and not all(text.split(":")[-1][:1].isdigit() for text in config.losses or ("",)):
        raise ValueError("design=confirm needs losses with their λ, as losses=reverse:relative:layerwise:0.1")
    places = [place for place in LAMBDAS if place in config.weights]
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
    base = replace(config, design="one", **{name: getattr(default, name) for name in GUIDES})
    changes = [*twins, *({**fields_of(setting), **context._asdict()} for setting, context in nets)]
    return [replace(base, **change) for change in changes]
