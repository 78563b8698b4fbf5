"""One step: call the model and run its reverse pass, in eager mode or while torch.compile traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from racecar.reverse import compiled_step, eager_step
from racecar.reverse.engine import Engine
from racecar.reverse.loss import Outcome
from racecar.support.compiling import compiling


def run_step(
    engine: Engine, args: Sequence[Any], kwargs: Mapping[str, Any], check: bool = False, mask: Tensor | None = None
) -> tuple[Any, Outcome]:
    """The model's output, and the outcome of its reverse pass.

    This is the only place that chooses between eager mode and torch.compile.

    Args:
        engine: the model, its settings and its plans.
        args, kwargs: of the model's call.
        check: whether to check for dead layers.
        mask: of the reverse loss, True where a position of the input is data, False where it is padding.
    """
    run = compiled_step.run if compiling() else eager_step.run
    return run(engine, args, kwargs, engine.masks.find(mask, args, kwargs), check)
