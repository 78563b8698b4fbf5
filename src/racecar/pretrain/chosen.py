"""Which layers are pretrained, and with which parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from racecar.plan.layer import Layer
from racecar.racecar import call_arguments
from racecar.reverse.forward_pass import ForwardPass
from racecar.support.torch_private import own_parameters
from racecar.watch.calls import tensors
from racecar.watch.names import choose, shown


class Chosen:
    """The layers to pretrain, and the names of each one's parameters: its weight and bias, and those of its norm.

    Args:
        model: the model.
        example: its input, as for ``Racecar``.
        patterns: layer-name pattern or patterns; None: all layers.
    """

    def __init__(self, model: nn.Module, example: Any, patterns: str | Sequence[str] | None) -> None:
        forward = ForwardPass(model, *call_arguments(example, model))
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.all_names = list(names.values())
        """Names of all parameters of the model."""
        patterns = [patterns] if isinstance(patterns, str) else patterns
        self.layers: dict[str, list[str]] = {}
        """Layer name → names of the parameters to train in it; in the order of the model."""
        taken: set[str] = set()
        known = ", ".join(repr(shown(layer.name)) for layer in forward.layers)
        spellings = [layer.names for layer in forward.layers]
        for i in choose(["*"] if patterns is None else patterns, spellings, "layers pattern"):
            layer = forward.layers[i]
            if layer.problem:
                continue
            trained = [names[id(parameter)] for parameter in _parameters(forward, layer) if id(parameter) in names]
            trained = [name for name in trained if name not in taken]
            if trained:  # a later use of a layer has nothing left to train
                self.layers[layer.name] = trained
                taken.update(trained)
        if not self.layers:
            raise ValueError(f"layers {patterns!r} match nothing that can be trained; the layers are: {known}")


def _parameters(forward: ForwardPass, layer: Layer) -> list[nn.Parameter]:
    """The parameters of all operations from the layer's weighted one to its output d_(m+1)."""
    parameters: dict[int, nn.Parameter] = {}
    value = layer.out
    while True:
        op = forward.layer_graph.graph.maker[value]
        members = op.members or (op,)
        for call in (forward.calls[member.ordinal] for member in members):
            for _, tensor in tensors(call.args, call.kwargs):
                if isinstance(tensor, nn.Parameter):
                    parameters[id(tensor)] = tensor
        if op is layer.op:
            break
        value = op.source
    owner = layer.op.owner
    if owner is not None and owner.derived:  # a weight that is computed: all parameters of its parametrisation
        held = own_parameters(owner.holder)
        sources = held.values() if owner.holder is not owner.module else [held[owner.parameter]]
        parameters.update({id(source): source for source in sources if source is not None})
    return list(parameters.values())
