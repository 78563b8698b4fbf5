"""Batches of a DataLoader given where a model's arguments are expected."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

ExampleInputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""A tensor, a tuple of positional arguments, a dict of keyword arguments, or a DataLoader's list."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def first_of(batch: list[Any], model: nn.Module | None) -> Tensor:
    """x of a batch [x, y] for a model that takes one argument; ``TypeError`` where that is not clear."""
    if batch and isinstance(batch[0], Tensor) and model is not None and _takes_one(model):
        return batch[0]
    raise TypeError(
        "example_inputs is a list, as a DataLoader gives it: give batch[0], or tuple(batch) where the model takes all "
        "of it as positional arguments"
    )


def too_many(model: nn.Module, args: Sequence[Any]) -> str:
    """A hint for the error message of a model that was called with too many arguments; empty if it was not."""
    parameters = inspect.signature(model.forward).parameters.values()
    most = sum(one.kind in _POSITIONAL for one in parameters)
    if len(args) <= most or any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return ""
    return f"; a tuple holds the model's positional arguments, here {len(args)}: of a batch (x, y) give batch[0]"


def _takes_one(model: nn.Module) -> bool:
    """Whether a model takes one input: one positional argument is required, or there is only one."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return False
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    required = [one for one in parameters if one.default is one.empty and one.kind is not inspect.Parameter.VAR_KEYWORD]
    return len(positional) == 1 if not required else len(required) == 1 and required[0] in positional
