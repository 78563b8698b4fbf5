"""The objective of a turn, as a module: from a batch to the task's loss and the regulariser."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from racecar import Racecar
from racecar.orthogonality import srip
from racecar_lab.training import distributed
from racecar_lab.training.recipe import Batch, Turn
from racecar_lab.training.spec import Training, networks_of
from racecar_lab.training.variants import OwnVariant


class Regularised(nn.Module):
    """A network whose call returns its output and its regulariser, not yet multiplied by λ. This base class has a
    regulariser of 0, for variants that add nothing to the loss."""

    network: nn.Module
    noise = 0
    """Number of random numbers in a call's argument ``noise``. The caller draws them, so that all engines can pass the
    same ones."""
    every = 1
    """Number of steps from one that has the regulariser to the next; 1: every step has it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor, noise: Tensor | None = None, on: bool = True) -> tuple[Tensor, Tensor]:
        output = self.network(*inputs)
        return output, output.new_zeros(())

    @property
    def terms(self) -> Mapping[str, Tensor]:
        """The regulariser of the last call, before λ, in parts: name of a layer → its part. Empty if it has no
        parts."""
        return {}


class Reverse(Regularised):
    """A network with the loss of its reverse pass: RR, lRR, RR1 and Lin.

    ``weight`` of its ``Racecar`` only says which layers count. λ multiplies the loss outside, because batched nets have
    a λ each, it may fade from step to step, and curves show the loss before it. With λ in ``weight``, results round
    differently.

    Args:
        example: inputs (N, …) of the network, from which the reverse pass is planned.
        every: the reverse pass is run in every ``every``-th step, with ``every`` times the loss.
        arguments: further arguments of ``Racecar``.
    """

    network: Racecar

    def __init__(self, network: nn.Module, example: Any, *, every: int = 1, **arguments: Any) -> None:
        super().__init__(Racecar(network, example, **{"weight": 1.0, **arguments}))
        self.every = every
        # Gradients are averaged over processes, each of which sums over its own part of the batch.
        self.factor = every * (distributed.world() if self.network.scale == "sum" else 1)

    def forward(self, *inputs: Tensor, noise: Tensor | None = None, on: bool = True) -> tuple[Tensor, Tensor]:
        if not on:
            output = self.network.model(*inputs)
            return output, output.new_zeros(())
        output, loss = self.network(*inputs)
        return output, loss * self.factor

    @property
    def terms(self) -> Mapping[str, Tensor]:
        return self.network.terms


class Orthogonal(Regularised):
    """A network with the orthogonality regulariser SRIP of its weights: Ort and OrtB.

    Args:
        arguments: further arguments of ``srip``.
    """

    def __init__(self, network: nn.Module, **arguments: Any) -> None:
        super().__init__(network)
        self.arguments = arguments
        self.sizes: list[int] = []
        """For each random draw in a call of SRIP, in their order, the number of random numbers."""

        def draw(*shape: int, **like: Any) -> Tensor:
            self.sizes.append(torch.Size(shape).numel())
            return torch.ones(shape, **like)

        with torch.no_grad():
            srip(network, draw=draw, **arguments)
        self.noise = sum(self.sizes)

    def forward(self, *inputs: Tensor, noise: Tensor | None = None, on: bool = True) -> tuple[Tensor, Tensor]:
        assert noise is not None
        parts = iter(noise.split(self.sizes))

        def draw(*shape: int, **like: Any) -> Tensor:
            return next(parts).reshape(shape).to(**like)

        return self.network(*inputs), srip(self.network, draw=draw, **self.arguments)


class Objective(nn.Module):
    """The task's loss and the regulariser of a turn, as a function of a batch, which every kind of step calls,
    compiles, records or batches. Only networks that the turn trains are submodules; the weights of the others are
    neither optimised nor shared between processes."""

    def __init__(self, training: Training, turn: Turn) -> None:
        super().__init__()
        self.turn, self._networks = turn, training.networks
        network, variant = self._networks[turn.network], training.variant
        if variant.kind == "reverse" and turn.regularised:
            arguments = variant.arguments({**training.reverse, **turn.reverse})
            example = _example(training, turn)
            self.regularised: Regularised = Reverse(network, example, every=training.config.every, **arguments)
        elif variant.kind == "orthogonality" and turn.regularised:
            self.regularised = Orthogonal(network, **training.orthogonality)
        elif isinstance(variant, OwnVariant) and turn.regularised:
            self.regularised = variant.regularised(self._networks, training.config)
        else:
            self.regularised = Regularised(network)

    def is_on(self, step: int) -> bool:
        """True if a step of the training, counted from 0, has the regulariser."""
        return step % self.regularised.every == 0

    def forward(
        self, x: Tensor, y: Tensor, noise: Tensor | None = None, latent: Tensor | None = None, on: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The task's loss and the regulariser before λ, two scalars. The regulariser is the mean over the network's
        calls.

        Args:
            x, y: samples and labels, (N, …).
            noise: random numbers of the regulariser, (``regularised.noise``,).
            latent: random numbers of the loss, (N, …).
            on: False for a step without the regulariser, which is then 0.
        """
        regularisers: list[Tensor] = []

        def call(*inputs: Tensor) -> Tensor:
            output, regulariser = self.regularised(*inputs, noise=noise, on=on)
            regularisers.append(regulariser)
            return output

        loss = self.turn.loss(call, Batch(x, y, latent), self._networks)
        _refuse_no_call(self.turn, len(regularisers))
        return loss, regularisers[0] if len(regularisers) == 1 else torch.stack(regularisers).mean()


def _refuse_no_call(turn: Turn, calls: int) -> None:
    if not calls:
        raise ValueError(f"the loss of network {turn.network!r} never calls it: there is nothing to train")


def _example(training: Training, turn: Turn) -> tuple[Tensor, ...]:
    """Example inputs of a turn's network, from which its reverse pass is planned. In a recipe with turns they are those
    of the network's first call in the turn's loss, which is computed on copies of all networks, so that no buffer
    changes."""
    train, device = training.task.train, next(training.model.parameters()).device
    first = slice(min(len(train), max(2, training.config.batch or 64)))
    x = train.x[first].to(device)
    if not training.recipe.turns:
        return (x,)
    calls: list[tuple[Tensor, ...]] = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        networks = networks_of(copy.deepcopy(training.model))
        latent = torch.randn(len(x), *turn.latent, device=device) if turn.latent else None

        def call(*inputs: Tensor) -> Tensor:
            calls.append(tuple(tensor.detach() for tensor in inputs))
            return networks[turn.network](*inputs)

        turn.loss(call, Batch(x, train.y[first].to(device), latent), networks)
    _refuse_no_call(turn, len(calls))
    return calls[0]
