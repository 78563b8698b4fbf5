"""Penalties on the parameters of one net, each as in the paper that proposed it, before multiplication by the weight.

A penalty may have a state, tensors that it keeps from step to step; by default it is empty. Activations are constants
to a penalty: no gradient flows through them.
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
"""The exponent k of spectral regularisation."""
SCALE = 2.0
"""The factor s of Parseval regularisation: the square of the gain √2 of ReLU."""
WIDTH = 64
"""Width of the nets that the weights of Parseval regularisation are meant for; other widths scale the penalty."""
TINY = 1e-12
"""Lower bound of denominators, so that nothing is divided by 0."""


@dataclass(frozen=True)
class Penalty:
    """A penalty that is minimised together with the task's loss: the functions that compute it for one net."""

    value: Callable[[StreamNet, Tensors, Tensors, Sequence[Tensor]], Tensor]
    """``value(net, parameters, state, inputs)`` returns the penalty, shape (); ``inputs`` has every layer's input."""
    initial_state: Callable[[StreamNet, Tensors, Tensor, Tensor], Tensors] = lambda *_: {}
    """``initial_state(net, parameters, key, number)`` returns the state before the first step; ``key`` is the net's
    random key and ``number`` that of the first random draw."""
    advance: Callable[[StreamNet, Tensors, Tensors], Tensors] = lambda net, parameters, state: state
    """``advance(net, parameters, state)`` returns the state with which the penalty is evaluated next."""


def l2(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ‖θ‖² over all parameters but those of norms."""
    return _total([p.square().sum() for name, p in parameters.items() if not net.is_norm(name)])


def l2_init(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ‖θ − θ₀‖² over all parameters but those of norms, with biases and the head (Kumar et al. 2023)."""
    return _total([(parameters[name] - start).square().sum() for name, start in state.items()])


def _initial_parameters(net: StreamNet, parameters: Tensors, key: Tensor, number: Tensor) -> Tensors:
    """θ₀, the state of the penalty ``l2_init``: copies of all initial parameters but those of norms."""
    return {name: p.clone() for name, p in parameters.items() if not net.is_norm(name)}


def soft_orthogonality(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ‖WᵀW − I‖² over all layers but the head, with W Wᵀ in place of WᵀW where it is the smaller matrix."""
    weights = [parameters[f"{name}.weight"].flatten(1) for name in net.layers[:-1]]
    return _total([_gram_error(w if w.shape[0] <= w.shape[1] else w.T, 1.0) for w in weights])


def parseval(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ (64 / width)² ‖W Wᵀ − 2 I‖² over all layers but the head, biases left out (Chung et al. 2024)."""
    weights = [parameters[f"{name}.weight"].flatten(1) for name in net.layers[:-1]]
    return _total([(WIDTH / len(w)) ** 2 * _gram_error(w, SCALE) for w in weights])


def _gram_error(w: Tensor, scale: float) -> Tensor:
    """‖W Wᵀ − scale · I‖² of a matrix W, the sum of the squared entries; shape ()."""
    return (w @ w.T - scale * torch.eye(len(w), dtype=w.dtype, device=w.device)).square().sum()


def spectral(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Σ (σ(W)² − 1)² + ‖b‖⁴ over all layers and the head (Lewandowski et al. 2025, k = 2).

    The largest singular value is σ = uᵀW v with u and v from the state, through which no gradient flows. A norm's scale
    is a diagonal matrix, so that its σ is the largest absolute entry.
    """
    terms = []
    for name, p in parameters.items():
        if name.endswith(".bias"):
            terms.append(p.square().sum() ** K)
        else:
            layer = name.removesuffix(".weight")
            sigma = p.abs().amax() if net.is_norm(name) else state[f"{layer}.u"] @ p.flatten(1) @ state[f"{layer}.v"]
            terms.append((sigma**K - 1).square())
    return _total(terms)


def spectral_without_head(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Spectral regularisation, Σ (σ(W)² − 1)² + ‖b‖⁴, over all layers but the head: a head whose σ is 1 gives small
    logits."""
    return spectral(net, {name: p for name, p in parameters.items() if not name.startswith("head.")}, state, inputs)


def _directions(net: StreamNet, parameters: Tensors, key: Tensor, number: Tensor) -> Tensors:
    """The state of spectral regularisation before the first step: for every layer a random unit vector u, and v = Wᵀu
    scaled to length 1."""
    state = {}
    for i, name in enumerate(net.layers):
        w = parameters[f"{name}.weight"]
        state[f"{name}.u"] = F.normalize(normal(key, number + i, w.shape[:1], w.dtype), dim=0)
        state[f"{name}.v"] = F.normalize(w.flatten(1).T @ state[f"{name}.u"], dim=0)
    return state


def _power_step(net: StreamNet, parameters: Tensors, state: Tensors) -> Tensors:
    """The state of spectral regularisation after one step of power iteration: for every layer v = Wᵀu and u = W v, both
    scaled to length 1."""
    after = {}
    for name in net.layers:
        w = parameters[f"{name}.weight"].flatten(1)
        after[f"{name}.v"] = F.normalize(w.T @ state[f"{name}.u"], dim=0)
        after[f"{name}.u"] = F.normalize(w @ after[f"{name}.v"], dim=0)
    return after


def linear(net: StreamNet, parameters: Tensors, state: Tensors, inputs: Sequence[Tensor]) -> Tensor:
    """Mean of ‖AᵀA h − h‖² / ‖h‖² over all layers but the head: A is the layer without its bias, and h its input."""
    terms = linear_terms(net, parameters, inputs)
    return _total(terms) / len(terms)


def linear_terms(net: StreamNet, parameters: Tensors, inputs: Sequence[Tensor]) -> list[Tensor]:
    """‖AᵀA h − h‖² / ‖h‖² of every layer but the head, 0 where h is 0: A is the layer without its bias, and h its
    input."""
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
    "l2-init": Penalty(l2_init, initial_state=_initial_parameters),
    "orthogonality": Penalty(soft_orthogonality),
    "parseval": Penalty(parseval),
    "spectral": Penalty(spectral, initial_state=_directions, advance=_power_step),
    "spectral-without-head": Penalty(spectral_without_head, initial_state=_directions, advance=_power_step),
    "linear": Penalty(linear),
}
"""Penalties by the names that are used in ``Method.penalty``."""
