"""Penalties on one net's parameters, each as its own paper has it, before it is multiplied by its strength.

A penalty may keep tensors from step to step (``kept``): ``begin`` makes them from the first parameters, ``advance``
changes them before each value is taken. Activations come in as constants: no gradient flows through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.streams.convolution import convolve, convolve_transposed
from racecar_lab.streams.draws import normal
from racecar_lab.streams.nets import StreamNet, Tensors, padding_of

K = 2
"""The power in spectral regularisation."""
SCALE = 2.0
"""Parseval's s: the square of the gain √2 that belongs to ReLU."""
WIDTH = 64
"""Of the nets that Parseval's strengths are meant for."""
TINY = 1e-12


def nothing(net: StreamNet, parameters: Tensors, key: Tensor, number: Tensor) -> Tensors:
    """Keeps nothing."""
    return {}


def unchanged(net: StreamNet, parameters: Tensors, kept: Tensors) -> Tensors:
    return kept


@dataclass(frozen=True)
class Penalty:
    """What is minimised beside the task's loss; all functions are for one net."""

    value: Callable[[StreamNet, Tensors, Tensors, Sequence[Tensor]], Tensor]
    """Of the net, its parameters, what was kept and the layers' inputs; a scalar, shape ()."""
    begin: Callable[[StreamNet, Tensors, Tensor, Tensor], Tensors] = nothing
    """What is kept at first: of the net, its parameters, its key and the number of the first draw."""
    advance: Callable[[StreamNet, Tensors, Tensors], Tensors] = unchanged


def l2(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ‖θ‖² over all parameters but those of norms."""
    return _total([p.square().sum() for name, p in parameters.items() if not net.is_norm(name)])


def l2_init(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ‖θ − θ₀‖² over all parameters but those of norms (Kumar et al. 2023): biases and the head are among them."""
    return _total([(parameters[name] - start).square().sum() for name, start in kept.items()])


def _starts(net: StreamNet, parameters: Tensors, key: Tensor, number: Tensor) -> Tensors:
    return {name: p.clone() for name, p in parameters.items() if not net.is_norm(name)}


def soft_orthogonality(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ‖WᵀW − I‖² with the smaller Gram matrix, the head left out as it is for ``linear``."""
    weights = [parameters[f"{name}.weight"].flatten(1) for name in net.layers[:-1]]
    return _total([_gram_error(w if w.shape[0] <= w.shape[1] else w.T, 1.0) for w in weights])


def parseval(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ (64 / width)² ‖W Wᵀ − 2 I‖² over all layers but the head, biases left out (Chung et al. 2024)."""
    weights = [parameters[f"{name}.weight"].flatten(1) for name in net.layers[:-1]]
    return _total([(WIDTH / len(w)) ** 2 * _gram_error(w, SCALE) for w in weights])


def _gram_error(w: Tensor, scale: float) -> Tensor:
    """‖W Wᵀ − scale · I‖²."""
    return (w @ w.T - scale * torch.eye(len(w), dtype=w.dtype, device=w.device)).square().sum()


def spectral(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ (σ(W)² − 1)² + ‖b‖⁴ over all layers, the head too (Lewandowski et al. 2025, k = 2). σ = uᵀW v with the kept u
    and v, through which no gradient flows. A norm's scale is a diagonal matrix, so that its σ is the largest entry."""
    terms = []
    for name, p in parameters.items():
        if name.endswith(".bias"):
            terms.append(p.square().sum() ** K)
        else:
            layer = name.removesuffix(".weight")
            sigma = p.abs().amax() if net.is_norm(name) else kept[f"{layer}.u"] @ p.flatten(1) @ kept[f"{layer}.v"]
            terms.append((sigma**K - 1).square())
    return _total(terms)


def spectral_without_head(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """The same with the head left out, as it is for ``linear``: a head whose σ is 1 has small logits."""
    return spectral(net, {name: p for name, p in parameters.items() if not name.startswith("head.")}, kept, inputs)


def _directions(net: StreamNet, parameters: Tensors, key: Tensor, number: Tensor) -> Tensors:
    """Random unit vectors u, and v from them."""
    kept = {}
    for i, name in enumerate(net.layers):
        w = parameters[f"{name}.weight"]
        kept[f"{name}.u"] = F.normalize(normal(key, number + i, w.shape[:1], w.dtype), dim=0)
        kept[f"{name}.v"] = F.normalize(w.flatten(1).T @ kept[f"{name}.u"], dim=0)
    return kept


def _power_step(net: StreamNet, parameters: Tensors, kept: Tensors) -> Tensors:
    """One step of power iteration: v = Wᵀu, u = W v, both of length 1."""
    after = {}
    for name in net.layers:
        w = parameters[f"{name}.weight"].flatten(1)
        after[f"{name}.v"] = F.normalize(w.T @ kept[f"{name}.u"], dim=0)
        after[f"{name}.u"] = F.normalize(w @ after[f"{name}.v"], dim=0)
    return after


def linear(net: StreamNet, parameters: Tensors, kept: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Mean of ‖AᵀA h − h‖² / ‖h‖² over all layers but the head, h being the layer's input."""
    terms = linear_terms(net, parameters, inputs)
    return _total(terms) / len(terms)


def linear_terms(net: StreamNet, parameters: Tensors, inputs: Sequence[Tensor]) -> list[Tensor]:
    """‖AᵀA h − h‖² / ‖h‖² of every layer but the head; 0 where h is 0."""
    terms = []
    for name, h in zip(net.layers[:-1], inputs, strict=False):
        w, op = parameters[f"{name}.weight"], net.get_submodule(name)
        if isinstance(op, nn.Conv2d):
            back = convolve_transposed(convolve(h, w, padding_of(op)), w, padding_of(op))
        else:
            back = h @ w.T @ w
        terms.append((back - h).square().sum() / h.square().sum().clamp_min(TINY))
    return terms


def _total(terms: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum()


PENALTIES = {
    "l2": Penalty(l2),
    "l2-init": Penalty(l2_init, begin=_starts),
    "orthogonality": Penalty(soft_orthogonality),
    "parseval": Penalty(parseval),
    "spectral": Penalty(spectral, begin=_directions, advance=_power_step),
    "spectral-without-head": Penalty(spectral_without_head, begin=_directions, advance=_power_step),
    "linear": Penalty(linear),
}
"""By the names that methods have for them."""
