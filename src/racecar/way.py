"""A plan with the user's settings worked in: what a step runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from racecar import loss, reverse
from racecar.batch import batch_size
from racecar.capture import Call
from racecar.frugal import frugally
from racecar.plan import Plan
from racecar.route import route
from racecar.settings import Settings


class Way:
    """A plan with the user's settings worked in, so that a step has nothing left to decide."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan, self.settings = plan, settings
        weights = loss.layer_weights(settings.weight, [layer.names for layer in plan.layers])
        # Where the layers are: a copy in every step would wait for the device.
        self.weights = [
            weight.to(layer.parameter.device) if isinstance(weight, Tensor) and layer.parameter is not None else weight
            for weight, layer in zip(weights, plan.layers, strict=True)
        ]
        self.features = [weight if isinstance(weight, Tensor) else None for weight in self.weights]
        """Apart from the numbers, which a compiler would build into its graph."""
        self.route = route(plan, settings.mode, [not loss.is_zero(weight) for weight in self.weights])
        self.constrained = [e.layer for e in self.route if e.constrained and e.layer is not None]
        self.needs = reverse.Needs([entry for entry in self.route if entry.needed])
        self.needs_all = reverse.Needs([entry for entry in self.route if entry.passed])
        self.copies = sorted(set(self.needs_all.values) & plan.changed)
        """Values that the way back needs and that the model changes in place later."""
        lost = [value for value in (*self.needs.values, *self.needs.shapes) if plan.batch[value] is None]
        self.lost = plan.around(lost[0]) if lost else ""
        """Where the batch dimension cannot be followed, if anywhere."""
        weights = [self.weights[layer.index] for layer in self.constrained]
        self.numbers = [1.0 if isinstance(weight, Tensor) else float(weight) for weight in weights]
        like = self.constrained[0].parameter if self.constrained else None
        self.lambdas = self._lambdas(torch.zeros((), dtype=torch.float32) if like is None else like)

    def _lambdas(self, like: Tensor) -> Tensor:
        """λ of the constrained layers: a tensor, so that a schedule neither waits for the device nor recompiles."""
        numbers = torch.tensor(self.numbers, dtype=loss.wide(like), pin_memory=like.is_cuda)
        return numbers.to(like.device, non_blocking=True)

    def slice_of(self, inputs: Sequence[Tensor]) -> tuple[int, int]:
        """(N, n): the batch and how many of its samples the reverse pass sees."""
        size, samples = slice_of(inputs, self.settings.share)
        if samples < size and self.lost:
            if not torch.compiler.is_compiling():
                message = f"fraction is ignored: the batch dimension cannot be followed through {self.lost}"
                warnings.warn(message, UserWarning, stacklevel=5)
            samples = size
        return size, samples

    def tape(self, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> reverse.Tape:
        """What a pass left behind, cut to the slice of the batch that the settings ask for."""
        return reverse.record(self.needs, reverse.Finder(self.plan, calls, inputs), *self.slice_of(inputs))

    def loss(self, tape: reverse.Tape) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss Σ λ_m · term_m and the terms by layer name."""
        return self._weigh(self._terms(tape))

    def compiled_loss(self, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The same while torch.compile traces.

        A slice is cut off inside what is made again in the backward pass, and so is cut off again. Outside it would be
        kept, beside the whole tensor; and torch (as of 2.13), which does not see that the two share their memory, would
        write over the one before it has read the other.
        """
        find, (size, samples) = reverse.Finder(self.plan, calls, inputs), self.slice_of(inputs)
        if samples == size:
            return self._weigh(self._terms(reverse.record(self.needs, find, size, size)))
        rows = find.all_rows(self.needs, size, samples)
        return self._weigh(frugally(lambda: self._terms(reverse.record(self.needs, find, size, samples, rows))))

    def _weigh(self, terms: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if not torch.compiler.is_compiling() and self.lambdas.device != terms.device:  # the model has moved
            self.lambdas = self._lambdas(terms)
        total = (terms * self.lambdas).sum()
        return total, dict(zip((layer.name for layer in self.constrained), terms.detach().unbind(), strict=True))

    def _terms(self, tape: reverse.Tape) -> Tensor:
        """Run the way back: the terms of the constrained layers, as one vector."""
        constrained = set(self.constrained)
        errors, sizes, counts = [], [], []
        # Compared as soon as it is made, so that a compiler reads d' once and keeps nothing for later.
        for layer, rebuilt in reverse.steps(self.needs, tape, self.settings.input_activation):
            if layer not in constrained:
                continue
            d, features = tape.tensors[layer.d], self.features[layer.index]
            if features is not None:
                batch = self.plan.batch[layer.d]
                features = loss.spread(features, d.shape, batch.dim if batch else 0, layer.name)
            errors.append(loss.squared_error(d, rebuilt, features))
            counts.append(d.numel())
            if self.settings.scale in loss.RELATIVE:
                sizes.append(loss.size(d, features, self.settings.scale))
        for found in (errors, sizes, counts):
            found.reverse()
        return loss.terms(errors, sizes, counts, self.settings.scale, tape.size / tape.samples)

    def rebuild(self, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> dict[int, Tensor]:
        """d'_m by layer index, of the whole batch, wherever the way back passes."""
        size = batch_size(inputs)
        tape = reverse.record(self.needs_all, reverse.Finder(self.plan, calls, inputs), size, size)
        return reverse.run(self.needs_all, tape, self.settings.input_activation)


@dataclass(eq=False)
class Choice:
    """Settings with the ways that were worked out for them, so that a schedule comes back to them at no cost."""

    settings: Settings
    off: bool
    """Whether the reverse pass is skipped."""
    ways: dict[Plan, Way] = field(default_factory=dict)


def slice_of(inputs: Sequence[Tensor], share: str) -> tuple[int, int]:
    """(N, n): the batch and how many of its samples the reverse pass sees."""
    size = batch_size(inputs)
    return size, max(1, round(float(share) * size))
