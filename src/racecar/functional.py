"""The reverse loss as a pure function: the twin of :class:`racecar.Racecar`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from racecar.engine import Activation, Engine, Settings, activation, check_reversible, dry_plan
from racecar.guards import check_model
from racecar.loss import Weight


def reverse_loss(
    model: nn.Module,
    args: Sequence[Any] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "auto",
    weight: Weight = 1.0,
    scale: str = "relative",
    fraction: float = 1.0,
    input_activation: str | Activation | None = None,
) -> tuple[Any, Tensor]:
    """The model's output and its racecar loss, as a pure function: nothing is kept between calls.

    Args:
        model: any module.
        args, kwargs: what the model is called with; a single tensor may stand for ``(tensor,)``.
        mode, weight, scale, fraction, input_activation: as for :class:`racecar.Racecar`.

    Returns:
        ``(model(*args, **kwargs), loss)``, the loss a float32 (or float64) scalar.
    """
    settings = Settings(mode, weight, scale, fraction, activation(input_activation))
    check_model(model)
    args = (args,) if isinstance(args, Tensor) else tuple(args)
    kwargs = dict(kwargs or {})
    plan = dry_plan(model, args, kwargs)
    check_reversible(model, plan, settings)
    engine = Engine(model)
    engine.add(plan, settings)
    output, total, _ = engine.run(args, kwargs, settings)
    return output, total
