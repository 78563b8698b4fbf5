"""The activations d1 … d(n+1) of a model's forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from racecar.inspect.unwrap import unwrapped
from racecar.plan.layer import Layer
from racecar.racecar import call_arguments
from racecar.reverse.forward_pass import ForwardPass
from racecar.support.eval_mode import eval_mode
from racecar.watch.batches import ExampleInputs
from racecar.watch.names import choose

RANGES: dict[str, tuple[float, float]] = {
    "tanh": (-1.0, 1.0),
    "softsign": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "special_expit": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "softmin": (0.0, 1.0),
}
"""Bounded activation function → (least, largest) value that it can return."""


@dataclass(frozen=True, eq=False)
class Activation:
    """One activation d_m of a forward pass: its tensor, and where in the model it lies."""

    name: str
    """"d1" (the model's input), "d2", …; the last one, d(n+1), is the output of the last layer."""
    layer: str
    """Qualified name of the layer whose input it is; "output" for the last activation."""
    tensor: Tensor
    """The values, (N, …) for N samples."""
    kind: str
    """The operation whose output it is: "input", "tanh", "relu", "conv2d", …"""
    range: tuple[float, float] | None
    """Least and largest value that this kind of operation can return, as (-1, 1) for tanh; None if unbounded."""


def activations(model: nn.Module, inputs: ExampleInputs, layers: Sequence[str] | str | None = None) -> list[Activation]:
    """Run one forward pass in evaluation mode and return the activations d1 … d(n+1); the model is not changed.

    Args:
        model: any model that Racecar can plan, or a Racecar.
        inputs: as for ``Racecar``: a tensor (N, …), a tuple of arguments or a dict of keyword arguments.
        layers: activation names ("d3") or layer-name patterns to return; None: all.

    Returns:
        The input d_m of each layer, in the order in which the layers run, then the output of the last layer.
    """
    model = unwrapped(model)
    with eval_mode(model):
        forward = ForwardPass(model, *call_arguments(inputs, model))
    result = [_activation(forward, f"d{layer.index + 1}", layer.name, layer.d) for layer in forward.layers]
    last = forward.layers[-1]
    result.append(_activation(forward, f"d{last.index + 2}", "output", after(forward, last)))
    if layers is None:
        return result
    spellings = [(d.name, *layer.names) for d, layer in zip(result, forward.layers, strict=False)]
    spellings.append((result[-1].name, "output"))
    labels = [f"{d.name} ({d.layer})" for d in result]
    return [result[i] for i in choose([layers] if isinstance(layers, str) else layers, spellings, "layers:", labels)]


def _activation(forward: ForwardPass, name: str, layer: str, value: int) -> Activation:
    op = forward.layer_graph.graph.maker.get(value)
    kind = "input" if op is None else op.kind
    return Activation(name, layer, forward.value(value), kind, RANGES.get(kind))


def after(forward: ForwardPass, layer: Layer) -> int:
    """The graph's value after the last norm or activation that follows a layer, a final softmax included."""
    graph, value = forward.layer_graph.graph, layer.end
    last_activation = value
    while len(users := graph.users.get(value, [])) == 1 and users[0].role.passable:
        value = users[0].outputs[0]
        if users[0].role.sets_range:
            last_activation = value
    return last_activation
