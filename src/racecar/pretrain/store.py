"""The file that a pretraining goes on from."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from racecar.support.files import spared
from racecar.support.sealed import read_sealed, write_sealed

FORMAT = 1


@dataclass(frozen=True)
class Pretrained:
    """How the pretraining of one layer went."""

    layer: str
    first: float
    """Its reverse loss in the first epoch, mean over the steps."""
    last: float
    """The same in the last epoch."""
    steps: int
    seconds: float


class ProgressFile:
    """The file that a pretraining goes on from."""

    def __init__(
        self,
        path: str | PathLike[str] | None,
        model: nn.Module,
        settings: Mapping[str, Any],
        loader: Iterable[Any],
        layers: Iterable[str],
    ) -> None:
        self.path, self.model, self.settings = None if path is None else Path(path), model, dict(settings)
        self.generator, self.layers = getattr(loader, "generator", None), set(layers)

    def load(self) -> list[Pretrained]:
        if self.path is None or not self.path.exists():
            return []
        try:
            held = read_sealed(self.path)
            if held["format"] != FORMAT:
                raise KeyError("format")
            settings, done = held["settings"], [Pretrained(**one) for one in held["done"]]
            if _shapes(held["model"]) != _shapes(self.model.state_dict()):
                raise KeyError("model")
            if held["random"].dtype != torch.uint8 or not {one.layer for one in done} <= self.layers:
                raise KeyError("random")
            version, numbers, spare = held["python"]
        except Exception as error:
            message = f"{self.path} is damaged, or no pretraining checkpoint; delete it or give another file"
            raise ValueError(message) from error
        if settings != self.settings:
            raise ValueError(
                f"{self.path} was made with {settings}, not {self.settings}; delete it or give another file"
            )
        self.model.load_state_dict(held["model"])
        torch.set_rng_state(held["random"])
        random.setstate((version, tuple(numbers), spare))
        if self.generator is not None and held["generator"] is not None:
            self.generator.set_state(held["generator"])
        return done

    def save(self, done: Sequence[Pretrained]) -> None:
        if self.path is None:
            return
        held = {
            "format": FORMAT,
            "settings": self.settings,
            "done": [asdict(one) for one in done],
            "model": self.model.state_dict(),
            "random": torch.get_rng_state(),
            "python": [*map(_plain, random.getstate())],
            "generator": None if self.generator is None else self.generator.get_state(),
        }
        with spared("a pretraining checkpoint"):
            write_sealed(self.path, held)


def _shapes(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _plain(part: Any) -> Any:
    return list(part) if isinstance(part, tuple) else part
