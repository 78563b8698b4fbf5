"""The setting ``input_activation``: the function applied to the rebuilt input. It is tried once before it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.plan.layer_graph import LayerGraph
from racecar.watch import nested
from racecar.watch.dry_run import untouched

Activation = Callable[[Tensor], Tensor]


def activation(setting: str | Activation | None) -> Activation | None:
    """The function that an ``input_activation`` setting stands for: a callable, or a name such as "relu"."""
    if setting is None:
        return None
    function: Any = setting
    if isinstance(setting, str):
        # From torch itself only functions that are also tensor methods: torch.manual_seed or torch.save must not run.
        function = getattr(F, setting, None) or (getattr(torch, setting, None) if hasattr(Tensor, setting) else None)
    if not callable(function):
        raise ValueError(f"input_activation must be None, a function or a name in torch.nn.functional, not {setting!r}")
    if isinstance(function, type):
        raise ValueError(f"input_activation must be a function, not the class {function.__name__}: give an instance")
    if isinstance(setting, str):
        _check(function, torch.rand(2, 3, 4, 5, generator=torch.Generator(), device="cpu"))
    return function


def check_on_inputs(function: Activation, layer_graph: LayerGraph, inputs: Sequence[Tensor], model: nn.Module) -> None:
    """Raise if an activation does not work on those of the model's inputs that the reverse pass rebuilds."""
    values = [layer_graph.values[layer.d] for layer in layer_graph.layers if layer.reads_input]
    for slot in sorted({value.slot for value in values if value.call < 0}):
        x = nested.padded(inputs[slot])
        if x.is_floating_point() and x.layout is torch.strided:
            _check(function, x, model)


def _check(function: Activation, x: Tensor, *modules: nn.Module) -> None:
    """Raise unless a function returns a floating-point tensor of the shape of x.

    Args:
        function: called once, on a copy of x, without gradient.
        modules: on whose devices the function may draw random numbers; their buffers and the random state are restored.
    """
    name = getattr(function, "__name__", type(function).__name__)
    restored = nn.ModuleList([*modules, *([function] if isinstance(function, nn.Module) else [])])
    try:
        with torch.no_grad(), untouched(restored), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are shown when the function is used
            y: Any = function(x.clone())
    except Exception as error:
        problem = f"it raised {type(error).__name__}: {error}".splitlines()[0]
    else:
        if isinstance(y, Tensor) and y.shape == x.shape and y.is_floating_point():
            return
        result = f"shape {tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        problem = f"it gave {result}"
    raise ValueError(
        f"input_activation {name} must give a tensor of the shape that it is given; on {tuple(x.shape)} {problem:.150}"
    )
