"""The weights λ of the terms: one number, or numbers and tensors by layer-name pattern."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import torch
from torch import Tensor, nn

from racecar.plan.layer_graph import LayerGraph
from racecar.support.torch_private import own_parameters
from racecar.watch.names import HEAD, matches, shown
from racecar.watch.names import check_patterns as check_names

Weight = float | Tensor | Mapping[str, float | Tensor]

_LARGEST = torch.finfo(torch.float32).max
_DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip
"""The dtypes that a tensor weight may have."""


def check_weight(weight: Weight) -> None:
    """Raise unless a weight is a finite number of at least 0, a tensor of such, or a dict of them."""
    if isinstance(weight, Mapping):
        if not weight:
            raise ValueError("weight is an empty dict: give at least one pattern, for example {'*': 1.0}")
        for pattern, value in weight.items():
            if not isinstance(pattern, str):
                raise TypeError(f"weight maps layer-name patterns (str) to numbers or tensors, not {pattern!r}")
            _check_value(value, f"weight[{pattern!r}]")
    else:
        _check_value(weight, "weight")


def _check_value(weight: float | Tensor, name: str) -> None:
    if isinstance(weight, Tensor):
        _check_tensor(weight, name)
    elif not isinstance(weight, Real) or isinstance(weight, bool):
        raise TypeError(f"{name} must be a number or a tensor, not {type(weight).__name__}")
    elif not 0 <= weight < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, not {weight}")
    elif weight > _LARGEST:
        raise ValueError(f"{name} is larger than {_LARGEST:.1e}, the largest float32: the loss would be infinite")


def _check_tensor(weight: Tensor, name: str) -> None:
    if weight.dtype not in _DTYPES:
        raise TypeError(f"{name} must be a tensor of real numbers, such as torch.float32, not {weight.dtype}")
    if weight.layout is not torch.strided or weight.is_nested:
        raise TypeError(f"{name} must be a dense tensor, not a sparse or nested one")
    if weight.is_meta:
        raise ValueError(f"{name} is on the meta device, which holds no numbers: give a tensor with values")
    if weight.numel() == 0:
        raise ValueError(f"{name} is an empty tensor: give a number, or a tensor that broadcasts against d_m")
    numbers = weight.detach().float()
    if not bool((numbers.isfinite() & (numbers >= 0)).all()):
        raise ValueError(f"{name} has negative, infinite or NaN elements (in float32): a weight is at least 0")


def layer_weights(weight: Weight, names: Sequence[Sequence[str]]) -> list[float | Tensor]:
    """λ for each layer: the last pattern that matches decides, a layer that no pattern matches gets 0.

    Args:
        weight: as the user gave it.
        names: for each layer the names that a pattern may call it.
    """
    if not isinstance(weight, Mapping):
        return [weight] * len(names)
    values: list[float | Tensor] = [0.0] * len(names)
    for pattern, value in weight.items():
        for i, spellings in enumerate(names):
            if matches(pattern, spellings):
                values[i] = value
    return values


def chosen_as_head(weight: Weight, names: Sequence[Sequence[str]]) -> list[bool]:
    """For each layer, whether the pattern that gives its λ is "@head"."""
    if not isinstance(weight, Mapping):
        return [False] * len(names)
    patterns = list(weight)[::-1]
    return [next((pattern for pattern in patterns if matches(pattern, spellings)), "") == HEAD for spellings in names]


def check_patterns(weight: Weight, layer_graphs: Sequence[LayerGraph], model: nn.Module) -> None:
    """Raise if a pattern matches no layer of the given graphs, and no module that may be a layer in another branch.

    A module that holds only a part of a layer's weight, as in a sum of linear maps, is no layer and has no λ of its
    own.
    """
    if not isinstance(weight, Mapping):
        return
    parameters = dict(model.named_parameters())
    users: dict[int, str] = {}
    for layer_graph in layer_graphs:
        for layer, used in zip(layer_graph.layers, layer_graph.coverage.of_layer, strict=True):
            users.update({id(parameters[name]): layer.name for name in used})
    parts: dict[str, str] = {}
    unseen = []
    for name, module in model.named_modules():
        matrices = {key: p for key, p in own_parameters(module).items() if p is not None and p.dim() > 1}
        if any(id(p) not in users for p in matrices.values()):
            unseen.append((name,))
        for key, p in matrices.items():
            if id(p) in users:
                parts[name] = parts[f"{name}.{key}".lstrip(".")] = users[id(p)]
    seen = [layer.names for layer_graph in layer_graphs for layer in layer_graph.layers]
    check_names(weight, seen, "weight pattern", unseen, parts=parts)


def placed(weight: float | Tensor, times: int, like: Tensor | None) -> float | Tensor:
    """``times`` · weight. A tensor is moved to the device of ``like``, a parameter of its layer, so that no step has
    to wait for the transfer."""
    if not isinstance(weight, Tensor):
        return times * weight
    with torch.inference_mode(False):
        weight = weight.clone() if weight.is_inference() else weight  # training cannot use inference tensors
        if times > 1:  # in float32 at least: integers and half precision would overflow
            weight = times * weight.to(torch.promote_types(weight.dtype, torch.float32))
        return weight if like is None else weight.to(like.device)


def unmatched(weight: Weight, names: Sequence[Sequence[str]]) -> bool:
    """Whether a layer is left out because no pattern matches it (not because its weight is 0)."""
    if not isinstance(weight, Mapping):
        return False
    return not all(any(matches(pattern, spellings) for pattern in weight) for spellings in names)


def spread(weight: Tensor, shape: torch.Size, batch: int, name: str) -> Tensor:
    """A tensor weight reshaped to broadcast against d_m, of the given shape; raises if it does not.

    Args:
        weight: broadcasts against one sample of d_m.
        shape: of d_m.
        batch: the batch dimension of d_m.
        name: of the layer, for the error.
    """
    sample = (*shape[:batch], *shape[batch + 1 :])
    pairs = zip(reversed(weight.shape), reversed(sample), strict=False)
    if weight.dim() > len(sample) or any(w not in (1, size) for w, size in pairs):
        raise ValueError(
            f"the weight of layer {shown(name)!r} has shape {tuple(weight.shape)}, which does not broadcast against "
            f"one sample of d_m, of shape {sample}"
        )
    return weight.reshape((1,) * (len(sample) - weight.dim()) + weight.shape).unsqueeze(batch)


def all_zero(weight: Weight) -> bool:
    """Whether λ is 0 for all layers, so that there is no reverse pass."""
    return all(map(is_zero, weight.values() if isinstance(weight, Mapping) else (weight,)))


def is_zero(weight: float | Tensor) -> bool:
    """Whether λ is 0, so that its layer is left out."""
    return not bool((weight != 0).any()) if isinstance(weight, Tensor) else weight == 0
