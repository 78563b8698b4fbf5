"""The checkpoint file of a pretraining, from which an interrupted one continues."""

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
    """The record of one layer's pretraining."""

    layer: str
    """Qualified name of the layer."""
    first: float
    """Mean reverse loss over the steps of the first epoch."""
    last: float
    """Mean reverse loss over the steps of the last epoch."""
    steps: int
    """Number of training steps."""
    seconds: float
    """Duration."""


class ProgressFile:
    """The checkpoint file of a pretraining: the layers that are done, the model's state and the random states.

    Args:
        path: the file; None: nothing is saved or loaded.
        model: the model that is pretrained.
        settings: the training's settings; a file with others is refused.
        loader: the training's batches; the state of its ``generator`` is saved, too.
        layers: names of all layers to train; a file with others is refused.
    """

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
        """Restore model and random states from the file; returns the records of the layers done, [] without a file."""
        if self.path is None or not self.path.exists():
            return []
        try:
            saved = read_sealed(self.path)
            if saved["format"] != FORMAT:
                raise KeyError("format")
            settings, done = saved["settings"], [Pretrained(**record) for record in saved["done"]]
            if _shapes(saved["model"]) != _shapes(self.model.state_dict()):
                raise KeyError("model")
            if saved["random"].dtype != torch.uint8 or not {record.layer for record in done} <= self.layers:
                raise KeyError("random")
            version, numbers, next_gauss = saved["python"]
        except Exception as error:
            message = f"{self.path} is damaged, or no pretraining checkpoint; delete it or give another file"
            raise ValueError(message) from error
        if settings != self.settings:
            raise ValueError(
                f"{self.path} was made with {settings}, not {self.settings}; delete it or give another file"
            )
        self.model.load_state_dict(saved["model"])
        torch.set_rng_state(saved["random"])
        random.setstate((version, tuple(numbers), next_gauss))
        if self.generator is not None and saved["generator"] is not None:
            self.generator.set_state(saved["generator"])
        return done

    def save(self, done: Sequence[Pretrained]) -> None:
        """Write the file, with the records of the layers that are done so far."""
        if self.path is None:
            return
        content = {
            "format": FORMAT,
            "settings": self.settings,
            "done": [asdict(record) for record in done],
            "model": self.model.state_dict(),
            "random": torch.get_rng_state(),
            "python": [*map(_plain, random.getstate())],
            "generator": None if self.generator is None else self.generator.get_state(),
        }
        with spared("a pretraining checkpoint"):
            write_sealed(self.path, content)


def _shapes(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _plain(part: Any) -> Any:
    """A tuple as a list, which the file format has; anything else as it is."""
    return list(part) if isinstance(part, tuple) else part
