"""``input_activation``: what is applied to the rebuilt input, judged by trying it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.plan.layers import LayerGraph
from racecar.watch import nested
from racecar.watch.dry_run import untouched

Activation = Callable[[Tensor], Tensor]


def activation(given: str | Activation | None) -> Activation | None:
    """``input_activation`` as a function: a callable, or a name such as "relu" or "sigmoid"."""
    if given is None:
        return None
    found: Any = given
    if isinstance(given, str):
        # Of torch itself only what tensors have, too: torch.manual_seed or torch.save must not be tried.
        found = getattr(F, given, None) or (getattr(torch, given, None) if hasattr(Tensor, given) else None)
    if not callable(found):
        raise ValueError(f"input_activation must be None, a function or a name in torch.nn.functional, not {given!r}")
    if isinstance(found, type):
        raise ValueError(f"input_activation must be a function, not the class {found.__name__}: give an instance")
    if isinstance(given, str):
        _try(found, torch.rand(2, 3, 4, 5, generator=torch.Generator(), device="cpu"))
    return found


def try_on_inputs(function: Activation, layer_graph: LayerGraph, inputs: Sequence[Tensor], model: nn.Module) -> None:
    """Refuse an activation that does not fit the model's inputs which it will be applied to, once they are rebuilt."""
    values = [layer_graph.values[layer.d] for layer in layer_graph.layers if layer.reads_input]
    for slot in sorted({value.slot for value in values if value.call < 0}):
        x = nested.padded(inputs[slot])
        if x.is_floating_point() and x.layout is torch.strided:
            _try(function, x, model)


def _try(function: Activation, x: Tensor, *modules: nn.Module) -> None:
    """Refuse an ``input_activation`` that does not give a tensor of the shape of x.

    Args:
        function: called once, on a copy of x, without gradient.
        modules: on whose devices it may draw random numbers; buffers and random state are put back.
    """
    name = getattr(function, "__name__", type(function).__name__)
    touched = nn.ModuleList([*modules, *([function] if isinstance(function, nn.Module) else [])])
    try:
        with torch.no_grad(), untouched(touched), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come when it is used
            y: Any = function(x.clone())
    except Exception as error:
        why = f"it raised {type(error).__name__}: {error}".splitlines()[0]
    else:
        if isinstance(y, Tensor) and y.shape == x.shape and y.is_floating_point():
            return
        why = f"it gave shape {tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else f"it gave {type(y).__name__}"
    raise ValueError(
        f"input_activation {name} must give a tensor of the shape that it is given; on {tuple(x.shape)} {why:.150}"
    )
