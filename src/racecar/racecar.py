"""Racecar: a model and its reverse pass, as one module."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from racecar.plan.plan import Plan
from racecar.plan.way_back import WayBack
from racecar.presets import name_of
from racecar.reverse import backwards
from racecar.reverse.eager_step import rebuild, watch_all
from racecar.reverse.engine import Engine
from racecar.reverse.health import DeadFlags, Health, can_read_values
from racecar.reverse.input_activation import Activation, activation
from racecar.reverse.loss import no_loss
from racecar.reverse.norm_statistics import PassStatistics
from racecar.reverse.prepared import PreparedPlan
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.reverse.run_step import run_step
from racecar.reverse.settings import Settings
from racecar.reverse.way_arguments import GivenTensors, plan_of_way
from racecar.reverse.weights import Weight
from racecar.rules.registry import Rule, UserRules, checked_rules
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform
from racecar.watch.batches import ExampleInputs, first_of
from racecar.watch.data_parallel import check_averaging
from racecar.watch.dry_run import untouched
from racecar.watch.guards import check_model
from racecar.watch.inputs import input_tensors


class Racecar(nn.Module):
    """A module around a model: a call returns the model's output and the racecar loss.

        rr = Racecar(model, x)
        output, loss = rr(x)
        (task_loss(output, y) + loss).backward()

    The reverse pass reuses every weight, transposed, to rebuild the activations d_m as d'_m; the loss is the mean of
    λ_m · term_m over the layers m, where term_m measures d_m − d'_m. The model gets no new parameter, buffer or hook.

    The defaults were chosen by a fixed rule from 18,000 small training runs: they killed no net that plain training
    does not kill. In the reverse pass batch norms use statistics of the reverse data: those of the batch in training,
    the running ones in ``reverse_statistics`` in evaluation. Each call leaves out the layers whose weight is frozen
    (``requires_grad`` is False) and those that the model runs under ``no_grad``.

    All settings but ``input_activation`` and ``rules`` can be set later. ``model`` can be replaced; the next call plans
    the new one.

    Args:
        model: any module.
        example_inputs: a tensor, a tuple of positional arguments or a dict of keyword arguments. From a list, as a
            DataLoader gives it, the first tensor is taken if the model takes one argument. Used once, to make the plan,
            without changing the model; a few samples are enough, and save memory.
        mode: "full" (one reverse pass from output to input), "layerwise" (every layer from its own forward output),
            "input" (the full one, compared at the input alone), "auto" (full along every stretch where the reverse pass
            is unique, starting again at joins and forks) or "linear" (the distance ‖AᵀAh − h‖² of every weighted
            operation A by itself, h its input, without norms and activations).
        weight: λ for all layers, or a dict from layer-name pattern to λ; later patterns win, a layer that no pattern
            matches is left out; "@head" is the last weighted operation on the way to each output. A tensor broadcasts
            against d_m without its batch dimension: (C, 1, 1) for images.
        scale: "relative" (Σ(d−d')² / Σd², the denominator taken as a constant), "ratio" (the same, with the gradient
            through the denominator, too), "anchored" (mean square error over the mean square of the model's input),
            "mean" (mean square error) or "sum" (the paper's squared norm over the batch).
        fraction: share of the batch, from its start, that the reverse pass sees.
        input_activation: applied to the rebuilt input, for example "relu" for images that are never negative: a name in
            ``torch.nn.functional``, or a function that gives a tensor of the same shape (it is tried once).
        gradient: what the gradient of a term reaches: "both" d and d' (the paper; without normalisation this can drive
            a net to 0), "reverse" (d' alone: d is a fixed target) or "weights" (the weights alone: all activations of
            the forward pass are constants). None: "reverse", in mode "linear" "weights".
        reduction: "mean" (over the constrained layers: λ means the same for 3 and for 100) or "sum" (the paper's).
        rules: rules for this Racecar alone, which override the registered ones: a dict from module class or function,
            as ``racecar.rules.register`` takes them, to a function ``(op, y, shape) -> x'`` that undoes a layer, or to
            a ``racecar.rules.Rule`` of any role.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: ExampleInputs,
        mode: str = "layerwise",
        weight: Weight = 0.001,
        scale: str = "relative",
        fraction: float = 1.0,
        input_activation: str | Activation | None = None,
        gradient: str | None = None,
        reduction: str = "mean",
        rules: UserRules | None = None,
    ) -> None:
        super().__init__()
        check_model(model)
        input_function = activation(input_activation)
        settings = Settings(mode, weight, scale, fraction, input_function, gradient, reduction, checked_rules(rules))
        self.model = model
        self.terms: dict[str, Tensor] = {}
        """Layer name → detached term of the last call, before λ: a scalar, shape (), on the device."""
        self.reverse_statistics = ReverseStatistics()
        """Running statistics of the batch norms' inputs in the reverse pass: updated by training calls, used in
        evaluation; not in the state dict."""
        self._health = Health()
        self._dead_flags: DeadFlags | None = None
        """The dead layers of the last compiled training step, which ``_health`` has not counted yet."""
        self._last_engine = Engine(model, settings, self.reverse_statistics)
        args, kwargs = call_arguments(example_inputs, model)
        self._last_engine.start(args, self._last_engine.masks.split_off(kwargs)[1])

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        """Call the model: returns ``(model(*args, **kwargs), loss)``, the loss a float32 (or float64) scalar, shape ().

        ``mask=`` marks padding: True or 1 where a position is data, False or 0 where it is padding, with the leading
        dimensions of the input as its shape, (N, T) for an input (N, T, …). Padding counts in no term and in no
        statistic of the reverse data. If the model itself takes an argument ``mask``, it gets it, and this one is
        called ``reverse_mask=``. ``attention_mask`` of Hugging Face's models, torch's ``src_key_padding_mask`` and
        nested tensors (``layout=torch.jagged``) are read without it.
        """
        engine = self._engine
        mask, kwargs = engine.masks.split_off(kwargs)
        if engine.skips:
            if engine.settings.off:
                self.terms = {}
            output = self.model(*args, **kwargs)
            loss = no_loss(input_tensors(args, kwargs))
        elif compiling():
            output, outcome = run_step(engine, args, kwargs, True, mask)
            self.terms, self._dead_flags = outcome.terms, outcome.dead if self.training else None
            loss = outcome.loss
        else:
            check = self.training and torch.is_grad_enabled() and can_read_values() and self._health.due()
            output, outcome = run_step(engine, args, kwargs, check, mask)
            loss = outcome.loss
            # Inside torch.func the terms are wrappers that die with the transform.
            transformed = in_transform(loss)
            self.terms = {} if transformed else outcome.terms
            if check and not transformed:
                self._health.add(outcome.dead, engine.settings.weight)
        check_averaging(self.model, (output, loss))
        return output, loss

    @property
    def _engine(self) -> Engine:
        """The engine of the current model; after ``rr.model = other`` a new one, which plans in its first call."""
        last, model = self._last_engine, self.model
        if last.model is not model:
            if compiling():
                raise RuntimeError("the model was replaced: call the uncompiled Racecar once, so that it is planned")
            check_model(model)
            self.terms, self.reverse_statistics = {}, ReverseStatistics()
            self._health, self._dead_flags = Health(), None
            self._last_engine = Engine(model, last.settings, self.reverse_statistics)
            self._last_engine.paused = last.paused
        return self._last_engine

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a Racecar's state dict, whose names begin with "model.", or the plain model's, whose names do not."""
        if isinstance(state_dict, Mapping):
            names = [name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())]
            if sum(name in state_dict for name in names) > sum(f"model.{name}" in state_dict for name in names):
                return self.model.load_state_dict(state_dict, strict, assign)
        return super().load_state_dict(state_dict, strict, assign)

    def train(self, mode: bool = True) -> Racecar:
        """Set training or evaluation mode. Also warn if the last compiled step, which cannot warn, saw dead layers."""
        self._warn_of_dead_layers()
        return super().train(mode)

    def _warn_of_dead_layers(self) -> None:
        """Warn if the last compiled step flagged dead layers."""
        if self._dead_flags is not None:
            flags, self._dead_flags = self._dead_flags, None
            self._health.add(flags, self._engine.settings.weight)

    @property
    def plan(self) -> Plan:
        """How every layer is reversed, for the branch that the model took in its last call; prints as a table."""
        return replace(self._planned.plan, preset=name_of(self._engine.settings))

    @property
    def _planned(self) -> PreparedPlan:
        """The plan of the last call; of the example inputs, before the first one."""
        latest = self._engine.cache.latest
        if latest is None:
            raise RuntimeError(
                "a Racecar that was copied, or whose model was replaced, is planned in its next call: call it once"
            )
        return latest

    @property
    def mode(self) -> str:
        """The mode of the reverse pass. Like all settings below it can be set at any time, without planning anew."""
        return self._engine.settings.mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._set(mode=mode)

    @property
    def scale(self) -> str:
        return self._engine.settings.scale

    @scale.setter
    def scale(self, scale: str) -> None:
        self._set(scale=scale)

    @property
    def gradient(self) -> str:
        return self._engine.settings.reach

    @gradient.setter
    def gradient(self, gradient: str | None) -> None:
        self._set(gradient=gradient)

    @property
    def reduction(self) -> str:
        return self._engine.settings.reduction

    @reduction.setter
    def reduction(self, reduction: str) -> None:
        self._set(reduction=reduction)

    @property
    def fraction(self) -> float:
        return self._engine.settings.fraction

    @fraction.setter
    def fraction(self, fraction: float) -> None:
        self._set(fraction=fraction)

    @property
    def weight(self) -> Weight:
        """λ, a number or a dict from layer-name pattern to number. At 0 calls skip the reverse pass and the loss is 0;
        :meth:`reconstruct` still works."""
        weight = self._engine.settings.weight
        return dict(weight) if isinstance(weight, Mapping) else weight

    @weight.setter
    def weight(self, weight: Weight) -> None:
        self._set(weight=weight)

    def schedule(self, times: int = 1, on: bool = True) -> None:
        """Run the next calls with ``times`` · λ, or without the reverse pass; without arguments, end such a schedule.

        ``weight`` stays λ, and nothing is planned anew. :class:`racecar.Every` calls this before each step.

        Args:
            times: what λ is multiplied by, a whole number of at least 1.
            on: whether the next calls run the reverse pass.
        """
        self._warn_of_dead_layers()
        self._engine.schedule(times, on)

    @property
    def rules(self) -> dict[Any, Rule]:
        """The rules that were given for this Racecar alone, by module class or function."""
        return dict(self._engine.settings.rules)

    def _set(self, **changed: Any) -> None:
        self._warn_of_dead_layers()
        self._engine.set(replace(self._engine.settings, **changed))

    def reconstruct(self, *args: Any, grad: bool = False, **kwargs: Any) -> list[Tensor | None]:
        """Run the reverse pass and return what it rebuilds, d'_m for every entry of the plan; [0] is the input.

        A weight of 0 for all layers changes nothing here: every layer is rebuilt.

        Args:
            args, kwargs: as for a call of the model; the whole batch is rebuilt.
            grad: whether gradients may flow through the result.

        Returns:
            One tensor (N, …) of d_m's shape per plan entry, None where the reverse pass does not reach it. No buffer of
            the model is changed.
        """
        engine = self._engine
        mask, kwargs = engine.masks.split_off(kwargs)
        with torch.set_grad_enabled(grad), untouched(self.model):
            _, prepared, values = watch_all(engine, args, kwargs)
            statistics = PassStatistics(self.reverse_statistics)
            rebuilt = rebuild(prepared, values, statistics, engine.masks.find(mask, args, kwargs))
        return [None if entry.layer is None else rebuilt.get(entry.layer.index) for entry in prepared.plan]

    def reverse(
        self, y: Any, *, to: str | None = None, start: str | None = None, given: GivenTensors | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Run the model backwards from any output y: the input to which its transposed weights lead.

            x = rr.reverse(y)                            # y need not be an output that the model gave
            d = rr.reverse(y, to="layer2")               # as far as the input of that layer
            x = rr.reverse(activation, start="layer2")   # from an activation of a layer

        The rules are those of mode "full", whatever ``rr.mode`` is, through all layers, also those with weight 0. The
        model is not run. Shapes are those of the example inputs, for any number of samples; the branch is that of the
        last call. Batch norms use the statistics of the reverse data, as in :meth:`reconstruct`. Gradients flow to y
        and to the weights. Padding is not masked, and a softmax at the end of the model is not undone: give logits.
        Before ``torch.compile`` with ``fullgraph=True`` call it once with the same arguments.

        Args:
            y: (N, …), of the shape of the model's output. Of several outputs give all of them, as the model returns
                them, or some as a dict from name or index to tensor (None or left out: not followed). Where their ways
                meet, the mean is taken on.
            to: the layer at whose d, its input, the reverse pass ends.
            start: the layer whose output y is, after its norm and activation.
            given: where several tensors are joined (a residual add, a concatenation, a gate) the way back is not
                unique. Name of the join, which the error says, → the tensor that is joined with the one that the
                reverse pass goes on with, or a tuple with all of them and None in the place of that one.

        Returns:
            (N, …) of the shape of the model's input, or of d_m of the layer ``to``; a tuple if the ways lead to several
            inputs. Where a norm, an activation or an embedding comes before the first layer, it is the output of that.
        """
        statistics = PassStatistics(self.reverse_statistics)
        engine = self._engine
        function = engine.settings.input_activation
        return backwards.reverse(self._planned.layer_graph, y, to, start, given, function, statistics)

    def reverse_plan(
        self,
        outputs: Sequence[str | int] | None = None,
        *,
        to: str | None = None,
        start: str | None = None,
        given: Collection[str] = (),
    ) -> WayBack:
        """The way of :meth:`reverse`: which outputs are followed, through which layers, and where ways meet.

        Args:
            outputs: names or indices of those that y would give; None: all.
            to, start: as for :meth:`reverse`.
            given: the names of the joins at which a tensor would be given.

        Returns:
            A plan that prints as a table.
        """
        return plan_of_way(self._planned.layer_graph, outputs, to, start, given)

    def extra_repr(self) -> str:
        s = self._engine.settings
        names = f"mode={s.mode!r}, scale={s.scale!r}, gradient={s.reach!r}, reduction={s.reduction!r}"
        return f"{names}, fraction={s.fraction}"


def call_arguments(example: Any, model: nn.Module | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split example inputs into positional and keyword arguments. A list, as a DataLoader gives it, needs the model."""
    if isinstance(example, list):
        example = first_of(example, model)
    if isinstance(example, Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple):
        return example, {}
    raise TypeError(
        "example_inputs must be a tensor, a tuple of positional arguments or a dict of keyword arguments, "
        f"not {type(example).__name__}"
    )
