"""The activations d1 … d(n+1) of a model, with the range that each one has."""

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
"""Activations that cannot leave a range."""


@dataclass(frozen=True, eq=False)
class Activation:
    """One d_m of a forward pass."""

    name: str
    """"d1", "d2", …; the last is what the last layer made of its input: d(n+1)."""
    layer: str
    """The layer that reads it, by its qualified name; "output" for the last."""
    tensor: Tensor
    """(N, …)"""
    kind: str
    """What made it: "input", "tanh", "relu", "conv2d", …"""
    range: tuple[float, float] | None
    """The values that it can take, or None if they have no bound."""


def activations(model: nn.Module, inputs: ExampleInputs, layers: Sequence[str] | str | None = None) -> list[Activation]:
    """The activations of one forward pass in evaluation mode, which leaves no trace in the model.

    Args:
        model: any model that Racecar can plan, or a Racecar.
        inputs: as for ``Racecar``: a tensor, a tuple of arguments or a dict of keyword arguments.
        layers: names ("d3") or layer-name patterns; all of them if None.

    Returns:
        d_m in the order in which the layers run, then the output of the last layer.
    """
    model = unwrapped(model)
    with eval_mode(model):
        forward = ForwardPass(model, *call_arguments(inputs, model))
    found = [_activation(forward, f"d{layer.index + 1}", layer.name, layer.d) for layer in forward.layers]
    last = forward.layers[-1]
    found.append(_activation(forward, f"d{last.index + 2}", "output", after(forward, last)))
    if layers is None:
        return found
    spellings = [(one.name, *layer.names) for one, layer in zip(found, forward.layers, strict=False)]
    spellings.append((found[-1].name, "output"))
    labels = [f"{one.name} ({one.layer})" for one in found]
    return [found[i] for i in choose([layers] if isinstance(layers, str) else layers, spellings, "layers:", labels)]


def _activation(forward: ForwardPass, name: str, layer: str, value: int) -> Activation:
    op = forward.layer_graph.graph.maker.get(value)
    kind = "input" if op is None else op.kind
    return Activation(name, layer, forward.value(value), kind, RANGES.get(kind))


def after(forward: ForwardPass, layer: Layer) -> int:
    """The value after a layer's last norm or activation, a softmax at the very end included."""
    graph, value = forward.layer_graph.graph, layer.end
    top = value
    while len(users := graph.users.get(value, [])) == 1 and users[0].role.passable:
        value = users[0].outputs[0]
        if users[0].role.sets_range:
            top = value
    return top
