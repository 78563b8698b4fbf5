"""The layers of a model, found by one forward pass without side effects."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from racecar.errors import NoRuleWarning, Unsupported
from racecar.plan.graph import Op
from racecar.plan.layer_graph import LayerGraph
from racecar.rules.registry import Rules
from racecar.rules.roles import Role
from racecar.support.compiling import uncompiled
from racecar.support.torch_private import map_tensors, version
from racecar.watch import nested
from racecar.watch.batches import too_many
from racecar.watch.dry_run import RngState, untouched
from racecar.watch.inputs import batch_tensors
from racecar.watch.modules import ModuleWatch
from racecar.watch.names import shown
from racecar.watch.recorder import Watch
from racecar.watch.trace import Trace


def layer_graph_of(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], rules: Rules, start: RngState | None = None
) -> LayerGraph:
    """The layers of a model, found by one forward pass that changes no gradient, buffer or random state.

    The model runs with gradient enabled, so that layers it runs under ``no_grad`` are recognised; backward is not
    called.
    """
    trainable = not any(parameter.is_inference() for parameter in model.parameters())
    with torch.inference_mode(False), torch.no_grad(), untouched(model, start), uncompiled():
        args, kwargs = map_tensors(torch.clone, (tuple(args), dict(kwargs)))
        inputs = batch_tensors(args, kwargs)
        versions = [version(x) for x in inputs]
        with warnings.catch_warnings():
            # Re-entrant checkpointing warns about missing gradients before racecar can raise an error.
            warnings.filterwarnings("ignore", message="None of the inputs have requires_grad=True")
            try:
                with torch.set_grad_enabled(trainable), Watch() as watch, ModuleWatch(watch, model, rules) as modules:
                    output = model(*args, **kwargs)
            except Unsupported:
                raise
            except Exception as error:
                shapes = ", ".join(str(tuple(x.shape)) for x in inputs) or "no tensor"
                raise ValueError(
                    f"{type(model).__name__} does not accept example_inputs ({shapes}): {type(error).__name__}: {error}"
                    + too_many(model, args)
                ) from error
        if nested.among(inputs):
            inputs = nested.pad(watch, inputs, versions, modules)
            versions = [version(x) for x in inputs]
        trace = Trace(watch.calls, inputs, watch.versions, versions, inputs)
        return LayerGraph(model, trace, rules, modules, output)


def warn_about(layer_graph: LayerGraph) -> None:
    """Warn of each operation without a rule that ends the reverse pass, and say how to add a rule."""
    for layer in layer_graph.layers:
        name = shown(layer.name)
        if layer.problem:
            message = f"layer {name!r} is skipped: {layer.problem}; add one with @racecar.rules.register(...)"
        elif layer.bottom is not None and _without_rule(layer.bottom):
            message = (
                f"no rule for {layer.bottom.kind!r}: the reverse pass from layer {name!r} ends there; add one with "
                "@racecar.rules.register(..., role='shape') or role='activation'"
            )
        else:
            continue
        warnings.warn(message, NoRuleWarning, stacklevel=4)


def _without_rule(op: Op) -> bool:
    """Whether an operation is unknown because it has no rule, not because its rule does not fit."""
    return op.role is Role.UNKNOWN and op.rule.role is Role.UNKNOWN
