"""The outputs of a model: its floating-point tensors, however they are nested, each with a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.watch.trace import Trace


class Output(NamedTuple):
    """One output of a model."""

    name: str
    """Its place: "0" in a tuple, "logits" in a dict, "aux.0" where they are nested; "" if it is the only one."""
    value: int | None
    """The number of its value; None if it does not depend on the model's input."""
    shape: torch.Size
    """In the planned pass."""

    @property
    def title(self) -> str:
        """The output in words."""
        return f"output {self.name!r}" if self.name else "output"


def named_tensors(tree: Any, place: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every floating-point tensor in nested tuples, lists, dicts and dataclasses, with the name of its place."""
    parts: Any = ()
    if isinstance(tree, Tensor):
        if tree.is_floating_point():
            yield place, tree
    elif isinstance(tree, Mapping):
        parts = tree.items()
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = zip(tree._fields, tree, strict=True)
    elif isinstance(tree, (tuple, list)):
        parts = enumerate(tree)
    elif dataclasses.is_dataclass(tree):
        parts = [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    for key, part in parts:
        yield from named_tensors(part, f"{place}.{key}" if place else str(key))


def outputs_of(output: Any, trace: Trace) -> tuple[Output, ...]:
    """The outputs of a planned pass."""
    return tuple(Output(name, trace.latest(tensor), tensor.shape) for name, tensor in named_tensors(output))
