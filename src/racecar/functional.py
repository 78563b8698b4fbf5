"""The racecar loss as pure functions, without the module :class:`racecar.Racecar`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from racecar.reverse.engine import Engine
from racecar.reverse.input_activation import Activation, activation
from racecar.reverse.run_step import run_step
from racecar.reverse.settings import Settings
from racecar.reverse.weights import Weight
from racecar.rules.registry import UserRules, checked_rules
from racecar.watch.data_parallel import check_averaging
from racecar.watch.guards import check_model


def reverse_loss(
    model: nn.Module,
    args: Sequence[Any] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: str = "layerwise",
    weight: Weight = 0.001,
    scale: str = "relative",
    fraction: float = 1.0,
    input_activation: str | Activation | None = None,
    gradient: str | None = None,
    reduction: str = "mean",
    rules: UserRules | None = None,
    mask: Tensor | None = None,
) -> tuple[Any, Tensor]:
    """Call a model once and return its output and its racecar loss.

    The function keeps nothing between calls, so every call plans the model anew: in a training loop
    :class:`racecar.Racecar` is faster.

    Args:
        model: any module.
        args, kwargs: what the model is called with; a single tensor may stand for ``(tensor,)``.
        mode, weight, scale, fraction, input_activation, gradient, reduction, rules: as for :class:`racecar.Racecar`.
        mask: (N, T) for inputs (N, T, …): True where a position is data, False where it is padding, as in a call of
            :class:`racecar.Racecar`.

    Returns:
        ``(model(*args, **kwargs), loss)``, the loss a float32 (or float64) scalar, shape ().
    """
    check_model(model)
    if not isinstance(args, (Tensor, Sequence)) or isinstance(args, (str, bytes)):
        raise TypeError(f"args must be a tensor or a tuple of positional arguments, not {type(args).__name__}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs must be a dict of keyword arguments, not {type(kwargs).__name__}")
    args = (args,) if isinstance(args, Tensor) else tuple(args)
    kwargs = dict(kwargs or {})
    input_function = activation(input_activation)
    settings = Settings(mode, weight, scale, fraction, input_function, gradient, reduction, checked_rules(rules))
    engine = Engine(model, settings)
    engine.start(args, kwargs)
    output, outcome = run_step(engine, args, kwargs, mask=mask)
    check_averaging(model, (output, outcome.loss))
    return output, outcome.loss


def linear_loss(
    model: nn.Module,
    args: Sequence[Any] | Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weight: Weight = 0.001,
    scale: str = "relative",
    fraction: float = 1.0,
    gradient: str = "weights",
    reduction: str = "mean",
    rules: UserRules | None = None,
    mask: Tensor | None = None,
) -> tuple[Any, Tensor]:
    """Call a model once and return its output and its linear loss, λ times the mean over layers of ‖AᵀAh − h‖² / ‖h‖².

        output, loss = linear_loss(model, x, weight={"*": 0.1, "@head": 0})
        (task_loss(output, y) + loss).backward()

    h is the input of a weighted operation (linear, convolution, …) and A that operation without its bias. A loss of 0
    means that every such A keeps lengths and angles along its own data. It is :func:`reverse_loss` with mode "linear".

    Args:
        model: any module.
        args, kwargs: what the model is called with; a single tensor may stand for ``(tensor,)``.
        weight, scale, fraction, reduction, rules: as for :class:`racecar.Racecar`; the pattern "@head" is the last
            weighted operation on the way to each output.
        gradient: "weights" (h is a constant: each term's gradient reaches its own layer's weight alone) or "both"
            (through h, too).
        mask: (N, T) for inputs (N, T, …): True where a position is data, False where it is padding, as in a call of
            :class:`racecar.Racecar`.

    Returns:
        ``(model(*args, **kwargs), loss)``, the loss a float32 (or float64) scalar, shape ().
    """
    return reverse_loss(
        model,
        args,
        kwargs,
        mode="linear",
        weight=weight,
        scale=scale,
        fraction=fraction,
        gradient=gradient,
        reduction=reduction,
        rules=rules,
        mask=mask,
    )
