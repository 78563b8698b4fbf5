"""Inputs of a model: from a shape on the command line, or from what the model says, to tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

Example = Tensor | tuple[Any, ...] | dict[str, Any]
_NUMBER = r"[1-9]\d{0,17}"  # of no more digits than fit into an int64
_ONE = re.compile(
    rf"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>{_NUMBER}(?:,{_NUMBER})*)(?::(?P<below>{_NUMBER}))?", re.ASCII
)


@dataclass(frozen=True)
class Input:
    """One input of a model."""

    shape: tuple[int, ...]
    """With the batch first."""
    below: int = 0
    """If not 0, the input holds integers from 0 up to and without this one."""
    name: str = ""
    """The keyword it is passed by; empty: by position."""

    def __str__(self) -> str:
        return f"{self.name} {'×'.join(map(str, self.shape))}".strip()

    def draw(self, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Noise of this shape: integers, or uniform in [0, 1) as pictures are."""
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
        found = _ONE.fullmatch("".join(part.split()))
        if found is None:
            raise ValueError(f"--input {text!r:.80} is no shape: give it with the batch, for example 1,3,224,224")
        shape = tuple(map(int, found["shape"].split(",")))
        inputs.append(Input(shape, int(found["below"] or 0), found["name"] or ""))
    if len({bool(one.name) for one in inputs}) > 1:
        raise ValueError(f"--input {text!r}: name every input, or none")
    return tuple(inputs)


def like(example: Any) -> tuple[Input, ...]:
    """Inputs like an example that a model brings (Lightning's ``example_input_array``); empty if it cannot be read."""
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
    """The same inputs for another number of samples."""
    return tuple(replace(one, shape=(batch, *one.shape[1:])) for one in inputs)


def draw(inputs: Sequence[Input], seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Noise for all inputs."""
    generator = torch.Generator().manual_seed(seed)
    return [one.draw(generator, dtype) for one in inputs]


def arguments(inputs: Sequence[Input], tensors: Sequence[Tensor]) -> Example:
    """Tensors in the form in which a model is called: one tensor, several by position, or by keyword."""
    if inputs[0].name:
        return {one.name: tensor for one, tensor in zip(inputs, tensors, strict=True)}
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
