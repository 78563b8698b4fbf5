"""Presets: arguments of :class:`racecar.Racecar` for a purpose, under its name.

    rr = Racecar(model, x, **presets.keep_learning)
    rr = Racecar(model, x, **{**presets.keep_learning, "fraction": 0.25})  # one of them changed

Each preset is an immutable mapping. ``print(rr.plan)`` names the preset whose settings ``rr`` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from racecar.reverse.settings import Settings

_COMPARED = ("mode", "weight", "scale", "fraction", "input_activation", "reach", "reduction", "rules")
"""Fields of ``Settings`` that must be equal for settings to be those of a preset."""


class Preset(Mapping[str, Any]):
    """A named, immutable mapping from arguments of ``Racecar`` to values; arguments not in it keep their defaults.

    Args:
        name: its name in this module.
        page: the documentation's page that shows what it is good for.
        settings: the arguments.
    """

    def __init__(self, name: str, page: str, **settings: Any) -> None:
        self.name = name
        self.page = page
        """The documentation's page that shows what these settings are good for."""
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
        values = {key: dict(value) if isinstance(value, Mapping) else value for key, value in self.items()}
        return f"{self.name}: {values} ({self.page})"

    def is_in(self, settings: Settings) -> bool:
        """Whether a Racecar with these settings has this preset's values, and defaults elsewhere."""
        preset = Settings(**self._settings)
        return all(_equal(getattr(preset, name), getattr(settings, name)) for name in _COMPARED)


def _equal(preset: Any, other: Any) -> bool:
    """Whether a preset's value equals another one. The order of λ's patterns counts, because later patterns win; a
    tensor is never equal, because no preset has one."""
    if isinstance(preset, dict) and isinstance(other, dict):
        return list(preset) == list(other) and all(_equal(value, other[key]) for key, value in preset.items())
    return not isinstance(other, Tensor) and bool(preset == other)


keep_learning = Preset("keep_learning", "docs/keep-learning.md", mode="linear", weight={"*": 0.1, "@head": 0})
"""Preset for a net that learns one task after another: every layer but the head is kept an isometry along its data."""

invert = Preset("invert", "docs/laboratory.md#smoke-a-gan-that-runs-backwards", mode="auto", weight=0.1)
"""Preset for a net that will be run backwards: one reverse pass through all layers, starting again only at joins and
forks. For a chain of layers that is mode "full", in which it was measured. λ was chosen on a generator; less of the
input comes back through a classifier's head."""

paper = Preset(
    "paper",
    "docs/experiments.md",
    mode="full",
    weight=1e-6,
    scale="sum",
    gradient="both",
    reduction="sum",
)
"""Preset of the paper's loss Σ λ‖d − d'‖², with gradients through d and d', and the λ of its peaks experiment. The loss
grows with the batch and with the range of the data."""

PRESETS = (keep_learning, invert, paper)


def name_of(settings: Settings) -> str:
    """The name of the preset that has these settings; "" if none has."""
    return next((preset.name for preset in PRESETS if preset.is_in(settings)), "")
