"""A plan with the user's settings worked in: what a step runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from racecar.errors import Unsupported
from racecar.plan.frozen import frozen, weight_parameters
from racecar.plan.layer import Layer
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.norms import Norm
from racecar.plan.routes import make_plan
from racecar.plan.slices import cut_shape
from racecar.reverse import linear_mode, reverse, terms, weights
from racecar.reverse.health import DeadFlags
from racecar.reverse.mask_arguments import CallMask
from racecar.reverse.masks import Masks
from racecar.reverse.needs import Needs
from racecar.reverse.norm_statistics import norms_at
from racecar.reverse.reading import Reading
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.reverse.selective_checkpoint import selective_checkpoint
from racecar.reverse.settings import Settings
from racecar.reverse.tape import Tape, record
from racecar.reverse.values import Finder
from racecar.rules.roles import Role
from racecar.support.compiling import compiling
from racecar.support.precision import wide
from racecar.watch.calls import Call
from racecar.watch.inputs import batch_size
from racecar.watch.names import shown


class Yardstick(NamedTuple):
    """What errors are measured by, beside d_m itself."""

    energy: Tensor | None
    """Of the model's input, for scale "anchored"."""
    floors: Tensor | None
    """For each constrained layer Σ d² up to which it is rounding noise; None if all are 0."""


class Outcome(NamedTuple):
    """Of one pass."""

    loss: Tensor
    terms: dict[str, Tensor]
    """Layer name → detached term, before λ."""
    signs: DeadFlags | None
    """What was looked at."""


class PreparedPlan:
    """A plan with the user's settings worked in, so that a step has nothing left to decide."""

    def __init__(self, layer_graph: LayerGraph, settings: Settings, flags: Sequence[bool] | None = None) -> None:
        self.layer_graph, self.settings = layer_graph, settings
        names = [layer.names for layer in layer_graph.layers]
        found = weights.layer_weights(settings.weight, names)
        self.weights = [
            weights.placed(weight, settings.times, layer.parameter)
            for weight, layer in zip(found, layer_graph.layers, strict=True)
        ]
        self.features = [weight if isinstance(weight, Tensor) else None for weight in self.weights]
        """Apart from the numbers, which a compiler would build into its graph."""
        self._behind = [weight_parameters(layer) for layer in layer_graph.layers]
        self.frozen = frozen(self._behind, [False] * len(layer_graph.layers)) if flags is None else tuple(flags)
        """For each layer, whether it was frozen when this was worked out."""
        self.siblings = {self.frozen: self}
        """The same with other layers frozen."""
        # The one term of mode "input" trains all layers that the reverse pass passes.
        whole = settings.mode == "input" and not all(self.frozen)
        numbers = zip(self.weights, self.frozen, strict=True)
        active = [not weights.is_zero(weight) and (whole or not flag) for weight, flag in numbers]
        self.plan = make_plan(layer_graph, settings.mode, active, self.frozen, found)
        self.plan = self.plan.with_heads(weights.chosen_as_head(settings.weight, names))
        self.constrained = [e.layer for e in self.plan if e.constrained and e.layer is not None]
        self.compared = {e.layer.index: e.d for e in self.plan if e.constrained and e.layer is not None}
        """By layer index, the value that is compared: d_m, or in mode "linear" what the operation reads."""
        for layer in self.constrained:
            if layer.layout is not torch.strided:
                raise Unsupported(
                    f"layer {shown(layer.name)!r} reads a tensor of layout {layer.layout}, which the reverse pass "
                    "cannot rebuild: give the model a dense one, x.to_dense(), or give that layer weight 0"
                )
        norms = [[op for op in layer.redo if op.role is Role.NORM and not op.members] for layer in self.constrained]
        matter = settings.scale in terms.RELATIVE and settings.mode != "linear"
        self.norms = [found[-1] if found and matter else None for found in norms]
        """For each constrained layer the last norm before its d_m, if it matters."""
        self.needs = Needs([entry for entry in self.plan if entry.needed], settings.reach)
        self.needs_all = Needs([entry for entry in self.plan if entry.passed])
        norm_inputs = [op.source for op in self.norms if op is not None]
        looked_at = (*self.needs.values, *self.needs.wholes, *self.needs_all.values, *norm_inputs)
        self.copies = sorted(set(looked_at) & layer_graph.in_place.values)
        """Values that the reverse pass needs and that the model changes in place later."""
        lost = [value for value in (*self.needs.values, *self.needs.shapes) if layer_graph.batch[value] is None]
        self.lost = layer_graph.around(lost[0]) if lost else ""
        """Where the batch dimension cannot be followed, if anywhere."""
        chosen = [self.weights[layer.index] for layer in self.constrained]
        share = len(chosen) if settings.reduction == "mean" else 1
        self.names = tuple(layer.name for layer in self.constrained)
        self.numbers = [(1.0 if isinstance(weight, Tensor) else float(weight)) / share for weight in chosen]
        like = self.constrained[0].parameter if self.constrained else None
        self.move(torch.zeros((), dtype=torch.float32) if like is None else like)

    def move(self, like: Tensor) -> None:
        """Put λ of the constrained layers where the terms are: a tensor, so that a schedule neither waits for the
        device nor recompiles."""
        with torch.inference_mode(False):  # wherever they are made, they are used in training
            lambdas = torch.tensor(self.numbers, dtype=wide(like), pin_memory=like.is_cuda)
            self.lambdas = lambdas.to(like.device, non_blocking=True)

    def frozen_now(self) -> tuple[bool, ...]:
        """For each layer, whether it is frozen: other layers may be than when this was worked out."""
        return frozen(self._behind, self.frozen)

    def _slice(self, inputs: Sequence[Tensor]) -> tuple[int, int]:
        """(N, n) of the settings; the whole batch where its dimension cannot be followed."""
        size, samples = self.settings.slice_of(inputs)
        lost = samples < size and bool(self.lost)
        if not compiling():
            if lost:
                self._ignored(f"the batch dimension cannot be followed through {self.lost}")
            elif size == 1 and self.settings.fraction < 1 and any(x.shape[:1].numel() > 1 for x in inputs):
                self._ignored("the model's first argument, of one sample, is taken for the batch: give the batch first")
        return size, size if lost else samples

    def _ignored(self, why: str) -> None:
        warnings.warn(f"fraction is ignored: {why}", UserWarning, stacklevel=6)

    def tape(
        self, calls: Sequence[Call | None], inputs: Sequence[Tensor], given: CallMask | None = None
    ) -> tuple[Tape, Yardstick]:
        """What a pass left behind, cut to the slice of the batch that the settings ask for, and what its errors are
        measured by. ``given``: what the call says of padding."""
        find, (size, samples) = Finder(self.layer_graph, calls, inputs), self._slice(inputs)
        masks = None if given is None else Masks(find, given, size, samples)
        return record(self.needs, find, size, samples, masks=masks), self._yardstick(find, size, samples, masks)

    def _yardstick(self, find: Finder, size: int, samples: int, masks: Masks | None) -> Yardstick:
        marks = None if masks is None else masks.inputs
        energy = terms.input_energy(find.inputs, marks) if self.settings.scale == "anchored" else None
        found = [None if op is None else find.moments(op, size, samples) for op in self.norms]
        if masks is not None:
            pairs = zip(self.norms, found, strict=True)
            found = [masks.without_padding(op.outputs[0], one) if op and one else None for op, one in pairs]
        if all(one is None for one in found):
            return Yardstick(energy, None)
        shapes = [find.tensor(layer.d).shape for layer in self.constrained]
        if samples < size:
            places = [find.batch(layer.d) for layer in self.constrained]
            shapes = [cut_shape(shape, at, size, samples) for shape, at in zip(shapes, places, strict=True)]
        return Yardstick(energy, terms.noise_floors(found, [shape.numel() for shape in shapes]))

    @property
    def places(self) -> dict[str, Norm]:
        """Where the loss applies batch norms again."""
        return norms_at(self.needs.places, self.layer_graph.norms)

    def loss(
        self,
        tape: Tape,
        yardstick: Yardstick,
        statistics: ReverseStatistics | None = None,
        look: bool = False,
    ) -> Outcome:
        """The loss Σ λ_m · term_m (or its mean over the layers), the terms, and if asked for what lives of the net."""
        reading = None if statistics is None else Reading(statistics)
        terms, sizes = self._terms(tape, yardstick, look, reading)
        if statistics is not None and reading is not None:
            statistics.update(reading.seen)
        shapes = [tape.shapes[self.compared[layer.index]] for layer in self.constrained]
        full = [i for i, shape in enumerate(shapes) if shape.numel() > 0] if look else []
        return self._weigh(terms, sizes, full)

    def compiled_loss(
        self,
        calls: Sequence[Call | None],
        inputs: Sequence[Tensor],
        statistics: ReverseStatistics | None = None,
        given: CallMask | None = None,
    ) -> Outcome:
        """The same while torch.compile traces.

        A slice is cut off inside what the backward pass recomputes, and so is cut off again. Outside it would be
        kept, beside the whole tensor; and torch (as of 2.13), which does not see that the two share their memory, would
        write over the one before it has read the other.
        """
        find, (size, samples) = Finder(self.layer_graph, calls, inputs), self._slice(inputs)
        masks = None if given is None else Masks(find, given, size, samples)
        yardstick = self._yardstick(find, size, samples, masks)
        rows = find.all_rows(self.needs, size, samples) if samples < size else None
        tape = partial(record, self.needs, find, size, samples, rows, masks)

        def run() -> tuple[Tensor | None, ...]:  # changes nothing: statistics leave it as results
            reading = None if statistics is None else Reading(statistics)
            found = self._terms(tape(), yardstick, True, reading)
            return (*found, *(() if statistics is None or reading is None else statistics.after(reading.seen)))

        # torch.func is not recomputed, nor a gradient that is there already.
        again = samples < size and not self.needs.by_vjp and not linear_mode.keeps_nothing(self.needs)
        terms, sizes, *made = selective_checkpoint(run) if again else run()
        if statistics is not None and made:
            statistics.use([one for one in made if one is not None])
        assert terms is not None
        return self._weigh(terms, sizes, range(len(self.names)))

    def _weigh(self, terms: Tensor, sizes: Tensor | None, looked_at: Sequence[int]) -> Outcome:
        """``looked_at``: the constrained layers that saw data, of which to say whether they live; none: do not say."""
        total, seen = (terms * self.lambdas).sum(), terms.detach()
        linear = self.settings.mode == "linear"  # there a term is 0 where A is orthogonal
        signs = None
        if looked_at:
            dead = ~seen.isfinite() if linear else (seen == 0) | ~seen.isfinite()
            dead = dead if sizes is None else dead | (sizes.detach() == 0)
            if len(looked_at) < len(self.names):  # an expert that no token came to is not dead
                dead = torch.stack([dead[i] for i in looked_at])
            signs = DeadFlags(tuple(self.constrained[i].names for i in looked_at), dead)
        return Outcome(total, dict(zip(self.names, seen.unbind(), strict=True)), signs)

    def _way(self, tape: Tape, reading: Reading | None) -> Iterator[tuple[Layer, Tensor | linear_mode.LinearStep]]:
        """Every layer that is needed, last first, with its d', or with its own way in mode "linear"."""
        if self.settings.mode == "linear":
            return linear_mode.steps(self.needs, tape)
        return reverse.steps(self.needs, tape, self.settings.input_activation, reading)

    def _terms(
        self, tape: Tape, yardstick: Yardstick, look: bool, reading: Reading | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Run the reverse pass: the terms of the constrained layers, as one vector; and √Σ d² of each, if they have to
        be looked at, and the term does not tell: one that is relative to it is 0 with it, but not only then in mode
        "linear"."""
        constrained, scale = set(self.constrained), self.settings.scale
        relative = scale in terms.RELATIVE
        errors, sizes, counts = [], [], []
        # Compared as soon as it is made, so that a compiler reads d' once and keeps nothing for later.
        for layer, rebuilt in self._way(tape, reading):
            if layer not in constrained:
                continue
            value, features = self.compared[layer.index], self.features[layer.index]
            d = tape.tensors[value] if self.settings.reach == "both" else tape.tensors[value].detach()
            if features is not None:
                batch = self.layer_graph.batch[value]
                features = weights.spread(features, d.shape, batch.dim if batch else 0, layer.name)
            mask = None
            if tape.masks is not None:
                mask = tape.masks.of(value, d.shape, f"layer {shown(layer.name)!r}")
            if isinstance(rebuilt, Tensor):
                errors.append(terms.squared_error(d, rebuilt, features, mask))
            else:
                errors.append(linear_mode.error(d, rebuilt, features, mask))
            counts.append(terms.counted(d, mask if scale in terms.AVERAGES else None))
            if relative or look:
                sizes.append(terms.size(d, features, scale, mask))
        for found in (errors, sizes, counts):
            found.reverse()  # from the first layer to the last
        if not compiling() and self.lambdas.device != errors[0].device:  # the model has moved
            self.move(errors[0])
        norms = terms.totals(sizes, torch.linalg.vector_norm) if sizes else None
        made = terms.terms(
            errors,
            counts,
            scale,
            sizes=norms,
            floors=yardstick.floors,
            share=tape.size / tape.samples,
            energy=yardstick.energy,
        )
        return made, norms if look and (self.settings.mode == "linear" or not relative) else None

    def rebuild(
        self,
        calls: Sequence[Call | None],
        inputs: Sequence[Tensor],
        reading: Reading | None = None,
        given: CallMask | None = None,
    ) -> dict[int, Tensor]:
        """d'_m by layer index, of the whole batch, wherever the reverse pass passes."""
        size = batch_size(inputs)
        find = Finder(self.layer_graph, calls, inputs)
        masks = None if given is None else Masks(find, given, size, size)
        tape = record(self.needs_all, find, size, size, masks=masks)
        if self.settings.mode == "linear":
            return linear_mode.run(self.needs_all, tape)
        return reverse.run(self.needs_all, tape, self.settings.input_activation, reading)
