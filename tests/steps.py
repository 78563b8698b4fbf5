"""One training step, so that two ways of making it can be compared."""

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from tests.networks import Inputs, call


class Step(NamedTuple):
    """What a step leaves behind, each as a dict so that one comparison fits all."""

    values: dict[str, Tensor]
    """The loss, its terms and every tensor of the output."""
    grads: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def leaves(output: Any) -> list[Tensor]:
    """Every tensor of a model's output."""
    if is_dataclass(output):
        output = vars(output)
    return [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, Tensor)]


def task(output: Any) -> Tensor:
    """Some loss on the output."""
    return sum((leaf.float() ** 2).mean() for leaf in leaves(output))


def step(rr: nn.Module, inputs: Inputs, run: Callable[..., Any] | None = None, seed: int = 0) -> Step:
    """Forward and backward of task + racecar loss. `run` stands for `rr` where it is wrapped (compiled, …)."""
    torch.manual_seed(seed)
    rr.zero_grad()
    output, loss = call(rr if run is None else run, inputs)
    (task(output) + loss).backward()
    values = {"loss": loss, **rr.terms, **{f"output {i}": leaf for i, leaf in enumerate(leaves(output))}}
    return Step(
        {name: value.detach().clone() for name, value in values.items()},
        {name: None if p.grad is None else p.grad.clone() for name, p in rr.named_parameters()},
        {name: buffer.clone() for name, buffer in rr.named_buffers()},
    )


def assert_same(one: Step, other: Step, **tolerance: float) -> None:
    """Two steps are equal, to the tolerance of `torch.testing.assert_close`."""
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)
