"""The shapes of a model's inputs, from ``--input`` or from the model, and tensors of these shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

Example = Tensor | tuple[Any, ...] | dict[str, Any]
_NUMBER = r"[1-9]\d{0,17}"  # of no more digits than fit into an int64
_INPUT = re.compile(
    rf"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>{_NUMBER}(?:,{_NUMBER})*)(?::(?P<below>{_NUMBER}))?", re.ASCII
)


@dataclass(frozen=True)
class Input:
    """Shape and kind of one input of a model."""

    shape: tuple[int, ...]
    """Shape with the batch first."""
    below: int = 0
    """If not 0, the input holds integers from 0 to below − 1; if 0, real numbers."""
    name: str = ""
    """Keyword of the argument; "": it is passed by position."""

    def __str__(self) -> str:
        return f"{self.name} {'×'.join(map(str, self.shape))}".strip()

    def draw(self, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw noise of this shape: integers below ``below``, or uniform in [0, 1), as pictures are."""
        try:
            if self.below:
                return torch.randint(self.below, self.shape, generator=generator)
            return torch.rand(self.shape, generator=generator, dtype=dtype)
        except RuntimeError as error:  # torch has several words for it, as "Storage size calculation overflowed"
            raise ValueError(f"the input {self} does not fit into memory: give a smaller --input") from error


def parse(text: str) -> tuple[Input, ...]:
    """Read ``--input``: ``[NAME=]SHAPE[:BELOW]``, several separated by semicolons."""
    inputs = []
    for part in text.split(";"):
        match = _INPUT.fullmatch("".join(part.split()))
        if match is None:
            raise ValueError(f"--input {text!r:.80} is no shape: give it with the batch, for example 1,3,224,224")
        shape = tuple(map(int, match["shape"].split(",")))
        inputs.append(Input(shape, int(match["below"] or 0), match["name"] or ""))
    if len({bool(parsed.name) for parsed in inputs}) > 1:
        raise ValueError(f"--input {text!r}: name every input, or none")
    return tuple(inputs)


def like(example: Any) -> tuple[Input, ...]:
    """Inputs of the shapes in a model's example (Lightning's ``example_input_array``); () unless all are tensors."""
    if isinstance(example, dict):
        named = example
    else:
        named = dict(enumerate(example if isinstance(example, tuple) else (example,)))
    inputs = []
    for name, value in named.items():
        if not isinstance(value, Tensor) or not value.dim() * value.numel() or value.dtype == torch.bool:
            return ()
        below = 0 if value.is_floating_point() else int(value.max()) + 1
        inputs.append(Input(tuple(value.shape), below, name if isinstance(name, str) else ""))
    return tuple(inputs)


def with_batch(inputs: Sequence[Input], batch: int) -> tuple[Input, ...]:
    """``inputs`` with the batch dimension, the first, set to ``batch``."""
    return tuple(replace(single, shape=(batch, *single.shape[1:])) for single in inputs)


def draw(inputs: Sequence[Input], seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Draw noise for all inputs."""
    generator = torch.Generator().manual_seed(seed)
    return [single.draw(generator, dtype) for single in inputs]


def arguments(inputs: Sequence[Input], tensors: Sequence[Tensor]) -> Example:
    """Tensors in the form in which the model is called: one tensor, a tuple by position, or a dict by keyword."""
    if inputs[0].name:
        return {named.name: tensor for named, tensor in zip(inputs, tensors, strict=True)}
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
