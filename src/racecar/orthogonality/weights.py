"""The weights that a regulariser sees, and like ones stacked, so that a deep network costs few kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from racecar.support.precision import wide
from racecar.support.torch_private import recurrent_parameter_names
from racecar.watch.names import choose

Weights = nn.Module | Tensor | Iterable[Tensor] | Mapping[str, Tensor]
Patterns = str | Iterable[str]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Kernel(NamedTuple):
    """A weight (out, rest…) and how it is applied; of a transposed convolution, how its adjoint is."""

    weight: Tensor
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1


def find(weights: Weights, patterns: Patterns | None) -> list[Kernel]:
    """All linear layers, convolutions and recurrent weights of a model, or the weights that are given; a shared one
    counts once.

    Args:
        weights: a module, one weight, several, or a mapping from name to weight.
        patterns: names (fnmatch) of the layers to take; None takes all.
    """
    named: dict[str, Any]
    if isinstance(weights, nn.Module):
        named = dict(_of_model(weights))
    elif isinstance(weights, Mapping):
        named = dict(weights)
    elif patterns is not None:
        raise ValueError("layers picks by name: give a model, or a mapping from name to weight")
    elif isinstance(weights, Tensor):
        named = {"": weights}
    elif isinstance(weights, Iterable):
        named = {str(i): weight for i, weight in enumerate(weights)}
    else:
        raise TypeError(f"a model, a weight or several weights are needed, not {type(weights).__name__}")
    bare = not isinstance(weights, nn.Module)
    layers = [_layer(named[name], name, bare) for name in _chosen(list(named), patterns)]
    if not layers:
        raise ValueError("no layer found: give a model with a linear layer or a convolution, or at least one weight")
    return list({id(layer.weight): layer for layer in layers}.values())


def _of_model(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """By name: modules that have one weight, and each weight of those that have several."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, *_CONVOLUTIONS)):
            yield name, module
        elif isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            own = recurrent_parameter_names(module) if isinstance(module, nn.RNNBase) else ("weight_ih", "weight_hh")
            for one in (one for one in own if one.startswith("weight")):
                yield f"{name}.{one}" if name else one, getattr(module, one)


def _layer(one: Any, name: str, bare: bool) -> Kernel:
    weight = one if bare or isinstance(one, Tensor) else one.weight
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight {name!r} must be a tensor, not {type(weight).__name__}")
    if isinstance(weight, UninitializedParameter):
        raise ValueError(f"weight {name!r} has no shape yet: call the model once before")
    if not weight.is_floating_point():
        raise TypeError(f"weight {name!r} must be real and floating-point, not {weight.dtype}")
    if weight.dim() < 2 or weight.numel() == 0:
        raise ValueError(
            f"weight {name!r} has shape {tuple(weight.shape)}: a matrix or a kernel (out, in, …) is needed"
        )
    if isinstance(one, _CONVOLUTIONS):
        return Kernel(weight, one.stride, one.dilation, one.groups)
    return Kernel(weight)


def _chosen(names: list[str], patterns: Patterns | None) -> list[str]:
    if patterns is None:
        return names
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return [names[i] for i in choose(patterns, [_spellings(name) for name in names], "layers pattern")]


def _spellings(name: str) -> tuple[str, ...]:
    """A weight of a module with several is called by the module's name, too."""
    module, _, own = name.rpartition(".")
    return (name, module) if own.startswith("weight_") else (name,)


def stacks(layers: Iterable[Kernel]) -> Iterator[tuple[Kernel, Tensor]]:
    """Layers that are alike in all but their values: one of them, and their weights (layers, out, rest…) in float32.

    Float64 stays float64.
    """
    alike: dict[tuple[object, ...], list[Kernel]] = {}
    for layer in layers:
        weight = layer.weight
        alike.setdefault((weight.device, weight.dtype, weight.shape, *layer[1:]), []).append(layer)
    for same in alike.values():
        weight = torch.stack([layer.weight for layer in same]) if len(same) > 1 else same[0].weight.unsqueeze(0)
        yield same[0], weight.to(wide(weight))


def matrices(weights: Weights, patterns: Patterns | None) -> Iterator[Tensor]:
    """Weights flattened to W, out × rest, those of one shape stacked: (layers, out, rest)."""
    for _, stack in stacks(Kernel(layer.weight.flatten(1)) for layer in find(weights, patterns)):
        yield stack


def exact(weight: Tensor) -> torch.autocast:
    """A context in which autocast does not touch the products of ``weight``: a residual W Wᵀ − I needs its digits."""
    return torch.autocast(weight.device.type, enabled=False)


def total(terms: Sequence[Tensor]) -> Tensor:
    """The sum of scalars, on the device of the first."""
    return torch.stack([term.to(terms[0].device) for term in terms]).sum()
