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
    """The layers to train and, by name, the parameters of each: its weight and bias, and its norm's."""

    def __init__(self, model: nn.Module, example: Any, patterns: str | Sequence[str] | None) -> None:
        forward = ForwardPass(model, *call_arguments(example, model))
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.all_names = list(names.values())
        patterns = [patterns] if isinstance(patterns, str) else patterns
        self.layers: dict[str, list[str]] = {}
        taken: set[str] = set()
        known = ", ".join(repr(shown(layer.name)) for layer in forward.layers)
        spellings = [layer.names for layer in forward.layers]
        for i in choose(["*"] if patterns is None else patterns, spellings, "layers pattern"):
            layer = forward.layers[i]
            if layer.problem:
                continue
            own = [names[id(one)] for one in _parameters(forward, layer) if id(one) in names]
            own = [one for one in own if one not in taken]
            if own:  # a later use of a layer has nothing left to train
                self.layers[layer.name] = own
                taken.update(own)
        if not self.layers:
            raise ValueError(f"layers {patterns!r} match nothing that can be trained; the layers are: {known}")


def _parameters(forward: ForwardPass, layer: Layer) -> list[nn.Parameter]:
    """What stands between the layer's operation and its output d_(m+1)."""
    found: dict[int, nn.Parameter] = {}
    value = layer.out
    while True:
        op = forward.layer_graph.graph.maker[value]
        members = op.members or (op,)
        for call in (forward.calls[one.ordinal] for one in members):
            for _, tensor in tensors(call.args, call.kwargs):
                if isinstance(tensor, nn.Parameter):
                    found[id(tensor)] = tensor
        if op is layer.op:
            break
        value = op.source
    owner = layer.op.owner
    if owner is not None and owner.derived:  # a weight that is computed: all parameters of its parametrisation
        every = own_parameters(owner.holder)
        mine = every.values() if owner.holder is not owner.module else [every[owner.parameter]]
        found.update({id(one): one for one in mine if one is not None})
    return list(found.values())
