"""Settings of :class:`racecar.Racecar` by name, for what they are good for.

    rr = Racecar(model, x, **presets.keep_learning)
    rr = Racecar(model, x, **{**presets.keep_learning, "fraction": 0.25})  # one of them changed

Each is a mapping that cannot be changed. The plan names the preset whose settings a Racecar has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from racecar.reverse.settings import Settings

_COMPARED = ("mode", "weight", "scale", "fraction", "input_activation", "reach", "reduction", "rules")


class Preset(Mapping[str, Any]):
    """Arguments of ``Racecar`` under a name; all others are its defaults."""

    def __init__(self, name: str, page: str, **settings: Any) -> None:
        self.name = name
        self.page = page
        """Of the documentation: what shows that these settings are good for something."""
        self._settings: dict[str, Any] = {
            key: MappingProxyType(value) if isinstance(value, dict) else value for key, value in settings.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        values = {name: dict(one) if isinstance(one, Mapping) else one for name, one in self.items()}
        return f"{self.name}: {values} ({self.page})"

    def is_in(self, settings: Settings) -> bool:
        """Whether these are the settings."""
        mine = Settings(**self._settings)
        return all(_equal(getattr(mine, name), getattr(settings, name)) for name in _COMPARED)


def _equal(mine: Any, other: Any) -> bool:
    """Of λ, also the order of the patterns counts: later ones win. No preset has a tensor."""
    if isinstance(mine, dict) and isinstance(other, dict):
        return list(mine) == list(other) and all(_equal(one, other[key]) for key, one in mine.items())
    return not isinstance(other, Tensor) and bool(mine == other)


keep_learning = Preset("keep_learning", "docs/keep-learning.md", mode="linear", weight={"*": 0.1, "@head": 0})
"""For a net that learns one task after another: every layer but the head is kept an isometry along its data."""

invert = Preset("invert", "docs/laboratory.md#smoke-a-gan-that-runs-backwards", mode="auto", weight=0.1)
"""For a net that shall be run backwards: one reverse pass through all layers, as far as there is one. Of a chain of
layers it is mode "full", with which it was measured. λ is that of a generator; a classifier's head gives less back."""

paper = Preset(
    "paper",
    "docs/experiments.md",
    mode="full",
    weight=1e-6,
    scale="sum",
    gradient="both",
    reduction="sum",
)
"""The paper's loss Σ λ‖d − d'‖², with gradients through d and d', and λ of its peaks; it grows with batch and data."""

PRESETS = (keep_learning, invert, paper)


def name_of(settings: Settings) -> str:
    """The name of the preset that has these settings; "" for others."""
    return next((one.name for one in PRESETS if one.is_in(settings)), "")
