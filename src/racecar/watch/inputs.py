"""The tensors among a model's arguments, and the size of their batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from racecar.support.torch_private import tensors_in
from racecar.watch import nested


def input_tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """Every tensor among the model's arguments, however nested."""
    return tensors_in((args, kwargs))


def batch_tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """Every tensor among the model's arguments; refuses an empty batch and nested tensors that cannot be padded."""
    inputs = input_tensors(args, kwargs)
    nested.among(inputs)
    if batch_size(inputs) == 0:
        raise ValueError("the inputs hold no samples: their batch is empty")
    return inputs


def batch_size(inputs: Sequence[Tensor]) -> int:
    """The number of samples: the size of dimension 0 of the model's first input that is no scalar, or 1."""
    return next((tensor.shape[0] for tensor in inputs if tensor.dim() > 0), 1)
