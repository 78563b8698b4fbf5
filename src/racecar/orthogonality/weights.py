"""Collect the weights to regularise and stack those of equal shape, so that a deep network takes few GPU kernels."""

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
"""What a regulariser takes: a model, one weight, several, or a mapping from name to weight."""
Patterns = str | Iterable[str]
"""fnmatch pattern or patterns of layer names."""

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Kernel(NamedTuple):
    """A layer's weight (out, rest…) and the stride, dilation and groups of its convolution. A transposed convolution is
    described as the convolution whose adjoint it is."""

    weight: Tensor
    stride: tuple[int, ...] = ()
    """Stride in each spatial dimension; () for a linear layer."""
    dilation: tuple[int, ...] = ()
    """Dilation in each spatial dimension; () for a linear layer."""
    groups: int = 1


def find(weights: Weights, patterns: Patterns | None) -> list[Kernel]:
    """Collect the linear, convolution and recurrent weights of a model, or the given weights; a shared one only once.

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
    """(name, module) for linear layers and convolutions, (name, weight) for each weight of a recurrent module."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, *_CONVOLUTIONS)):
            yield name, module
        elif isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            names = recurrent_parameter_names(module) if isinstance(module, nn.RNNBase) else ("weight_ih", "weight_hh")
            for weight_name in names:
                if weight_name.startswith("weight"):
                    yield f"{name}.{weight_name}" if name else weight_name, getattr(module, weight_name)


def _layer(source: Any, name: str, bare: bool) -> Kernel:
    """A weight and its settings, checked.

    Args:
        source: a module or a weight.
        name: its name, for error messages.
        bare: whether the user gave weights, not a model.
    """
    weight = source if bare or isinstance(source, Tensor) else source.weight
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
    if isinstance(source, _CONVOLUTIONS):
        return Kernel(weight, source.stride, source.dilation, source.groups)
    return Kernel(weight)


def _chosen(names: list[str], patterns: Patterns | None) -> list[str]:
    """The names that some pattern matches; all if there are no patterns."""
    if patterns is None:
        return names
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return [names[i] for i in choose(patterns, [_spellings(name) for name in names], "layers pattern")]


def _spellings(name: str) -> tuple[str, ...]:
    """The names that a pattern may match: the weight's own and, for one of a module's several weights, the module's."""
    module, _, attribute = name.rpartition(".")
    return (name, module) if attribute.startswith("weight_") else (name,)


def stacks(layers: Iterable[Kernel]) -> Iterator[tuple[Kernel, Tensor]]:
    """Group layers of equal shape, settings, device and dtype: yields one layer of each group, and the group's weights
    stacked as (layers, out, rest…), in float32, or float64 if they are."""
    alike: dict[tuple[object, ...], list[Kernel]] = {}
    for layer in layers:
        weight = layer.weight
        alike.setdefault((weight.device, weight.dtype, weight.shape, *layer[1:]), []).append(layer)
    for group in alike.values():
        weight = torch.stack([layer.weight for layer in group]) if len(group) > 1 else group[0].weight.unsqueeze(0)
        yield group[0], weight.to(wide(weight))


def matrices(weights: Weights, patterns: Patterns | None) -> Iterator[Tensor]:
    """The weights as matrices W, out × rest, those of equal shape stacked: yields (layers, out, rest)."""
    for _, stack in stacks(Kernel(layer.weight.flatten(1)) for layer in find(weights, patterns)):
        yield stack


def exact(weight: Tensor) -> torch.autocast:
    """A context without autocast on the weight's device: W Wᵀ − I is too small a difference for low precision."""
    return torch.autocast(weight.device.type, enabled=False)


def total(terms: Sequence[Tensor]) -> Tensor:
    """The sum of scalar tensors, on the device of the first."""
    return torch.stack([term.to(terms[0].device) for term in terms]).sum()
