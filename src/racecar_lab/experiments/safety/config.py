"""Which nets the safety map has, and what each of them is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from racecar_lab.config import Config, guide, guides, later
from racecar_lab.experiments.safety.design import (
    CONTEXTS,
    DEPTHS,
    LAMBDAS,
    LOSSES,
    LRS,
    NORMS,
    STARTS,
    Depth,
    Gradient,
    Layers,
    Mode,
    Norm,
    Scale,
    Start,
    covering,
    parse_setting,
)

PLAIN = {"mode": "none", "gradient": "none", "scale": "none", "layers": "all", "lam": 0.0}
OWN = ("mode", "gradient", "scale", "layers", "lam", "depth", "start", "norm", "lr")
"""What a design gives each net."""


@dataclass(frozen=True, kw_only=True)
class SafetyConfig(Config):
    """Which nets the map has, and what each of them is."""

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
    scale: Literal["none", Scale] = later("relative", before="relative")
    layers: Layers = "all"
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
        if len({one == "none" for one in (self.mode, self.gradient, self.scale)}) > 1:
            raise ValueError("mode, gradient and scale are all none, for plain training, or none of them is")
        self.refuse_negative("lam", "tests")
        if not self.labels or min(self.labels) < 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be numbers of at least 1, each once, not {self.labels!r}")
        for name in ("images", "draws", "l2"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")


GUIDES = tuple(sorted(guides(SafetyConfig) - {"design"}))
"""What a design is made of; no net depends on it."""


def designed(config: SafetyConfig) -> list[SafetyConfig]:
    """The configurations that a design asks for: plain twins, then the nets of every setting."""
    usual, one = SafetyConfig(), config.design == "one"
    for name in GUIDES if one else OWN:
        if getattr(config, name) != getattr(usual, name):
            why = "that is for a design" if one else "the design gives each net its own; add design=one"
            raise ValueError(f"{name} with design={config.design}: {why}")
    if one:
        return [config]
    if config.design == "confirm" and not all(text.split(":")[-1][:1].isdigit() for text in config.losses or ("",)):
        raise ValueError("design=confirm needs losses with their λ, as losses=reverse:relative:layerwise:0.1")
    places = [place for place in LAMBDAS if place in config.lams]
    texts = config.losses or [":".join(loss) for loss in LOSSES]  # with their layers spelt out
    levels = (config.depths, config.starts, config.norms, config.lrs)
    cells = {
        setting: [
            context
            for context in (CONTEXTS if config.design == "confirm" else covering(setting))
            if all(level in some for level, some in zip(context, levels, strict=True))
        ]
        for text in texts
        for setting in parse_setting(text, places)
    }
    needed = {context for some in cells.values() for context in some}
    base = replace(config, design="one", **{name: getattr(usual, name) for name in GUIDES})
    plain: dict[str, Any] = PLAIN
    return [
        *(replace(base, **context._asdict(), **plain) for context in CONTEXTS if context in needed),
        *(
            replace(base, **context._asdict(), **setting.loss._asdict(), lam=setting.lam)
            for setting, some in cells.items()
            for context in some
        ),
    ]
