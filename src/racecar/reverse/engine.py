"""The engine of a Racecar: a model with its settings and with the plans of the branches that it took."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from racecar.errors import NothingToReverse
from racecar.plan.from_model import layer_graph_of, warn_about
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.plan import Plan
from racecar.plan.routes import warn_bypassed
from racecar.reverse import terms, weights
from racecar.reverse.input_activation import check_on_inputs
from racecar.reverse.mask_arguments import MaskArguments
from racecar.reverse.plan_cache import PlanCache
from racecar.reverse.prepared import PreparedPlan
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.reverse.settings import Settings
from racecar.watch import nested
from racecar.watch.guards import check_model, fusible, reshard
from racecar.watch.inputs import input_tensors

_CUT_OFF = {"no_grad": "runs under no_grad in the model", "detached": "has a detached weight"}


class Engine:
    """A model with its settings and with the plans of the branches that it took.

    :func:`racecar.reverse.run_step.run_step` runs it.

    Args:
        model: the model.
        settings: the settings of its reverse pass.
        statistics: of the reverse data, recorded in training and used in evaluation; None: none are kept.
    """

    def __init__(self, model: nn.Module, settings: Settings, statistics: ReverseStatistics | None = None) -> None:
        self.model, self.settings, self.statistics = model, settings, statistics
        self.fusible = fusible(model)
        self.masks = MaskArguments(model)
        self.cache = PlanCache(type(model).__name__)
        self.paused = False
        """Whether a schedule leaves out the reverse pass of the next calls."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        other = Engine.__new__(Engine)
        memo[id(self)] = other
        # Functions stay the same objects: Python cannot copy those behind properties, such as Tensor.mT.
        memo.update({id(func): func for prepared in self.cache.plans for func in prepared.layer_graph.match.functions})
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        other.schedule(1, True)  # the schedule belongs to the original
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Plans hold functions that cannot be pickled: an unpickled Racecar plans anew in its first call.
        fresh = {"cache": PlanCache(type(self.model).__name__), "paused": False}
        return {**self.__dict__, **fresh, "settings": replace(self.settings, times=1)}

    @property
    def skips(self) -> bool:
        """Whether the next call skips the reverse pass, because λ is 0 or a schedule leaves it out."""
        return self.settings.off or self.paused

    def start(self, args: Sequence[Any], kwargs: Mapping[str, Any], train: bool = True) -> None:
        """Make the first plan; raises if there is nothing to reverse.

        Args:
            args, kwargs: of a call of the model.
            train: whether the model is to be trained: one whose layers are all frozen is refused, too.
        """
        layer_graph = layer_graph_of(self.model, args, kwargs, self.settings.rules)
        reshard(self.model)
        prepared = self.add(layer_graph)
        if train and not self.settings.off and not prepared.terms and any(prepared.frozen):
            cut_off = sorted({layer.cut_off for layer in layer_graph.layers if layer.cut_off})
            others = "".join(f" or {_CUT_OFF[reason]}" for reason in cut_off)
            raise NothingToReverse(
                f"every layer of {type(self.model).__name__} that could be constrained is frozen (requires_grad is "
                f"False){others}: the loss would train nothing; unfreeze a layer, or look into the model with "
                "racecar.inspect"
            )
        if self.settings.scale == "anchored":  # raises if it cannot be measured
            terms.input_energy([nested.padded(x) for x in input_tensors(args, kwargs)])
        if self.settings.input_activation is not None:
            check_on_inputs(self.settings.input_activation, layer_graph, input_tensors(args, kwargs), self.model)

    def add(self, layer_graph: LayerGraph) -> PreparedPlan:
        """Plan a new branch, and warn of what its reverse pass leaves out; raises if the first plan has no terms."""
        prepared = self._prepare(layer_graph, self.settings)
        warn_about(layer_graph)
        warn_bypassed(prepared.plan)
        if not self.cache.plans:
            self._check(prepared)
        self.cache.add(prepared)
        return prepared

    def refreeze(self, prepared: PreparedPlan, frozen: tuple[bool, ...]) -> PreparedPlan:
        """The plan of the same branch with other layers frozen, which takes the place of the old one."""
        new = self.cache.with_frozen(prepared, frozen) or self._prepare(prepared.layer_graph, self.settings, frozen)
        self.cache.replace(prepared, new)
        return new

    def with_all_layers(self, prepared: PreparedPlan) -> PreparedPlan:
        """The plan of the same branch as if no layer had weight 0."""
        return PreparedPlan(prepared.layer_graph, replace(self.settings, weight=1.0), prepared.frozen)

    def _prepare(
        self, layer_graph: LayerGraph, settings: Settings, frozen: Sequence[bool] | None = None
    ) -> PreparedPlan:
        """A plan with settings; its batch norms get a place in the statistics."""
        prepared = PreparedPlan(layer_graph, settings, frozen)
        if self.statistics is not None:
            self.statistics.add(prepared.norms)
        return prepared

    def set(self, settings: Settings) -> None:
        """Change the settings. Nothing is changed if they do not fit one of the plans."""
        old_plans, before = self.cache.plans, self.cache.latest
        weights.check_patterns(settings.weight, [prepared.layer_graph for prepared in old_plans], self.model)
        plans = [self._prepare(prepared.layer_graph, settings, prepared.frozen_now()) for prepared in old_plans]
        if plans and settings.mode != self.settings.mode:
            self._check(plans[0])
        self.settings = settings
        self.cache.replace_all(plans)
        latest = self.cache.latest
        if before is not None and latest is not None and latest.plan.bypassed != before.plan.bypassed:
            warn_bypassed(latest.plan)

    def schedule(self, times: int, on: bool) -> None:
        """Run the next calls with ``times`` · λ, or without the reverse pass."""
        if on not in (True, False):
            raise TypeError(f"on must be True or False, not {on!r:.80}")
        if self.settings.times != times:
            self.set(replace(self.settings, times=times))
        self.paused = not on

    def _check(self, prepared: PreparedPlan) -> None:
        """Raise if a model has nothing to reverse, or nothing that the settings choose."""
        layers, settings, name = prepared.layer_graph.layers, prepared.settings, type(self.model).__name__
        if not layers:
            uncovered = prepared.layer_graph.coverage.uncovered[:3]
            reasons = "".join(f"; {parameter.name}: {parameter.reason}" for parameter in uncovered)
            raise NothingToReverse(
                f"{name} has no weighted layer (linear, convolution, …) that sees its input{reasons}"
            )
        if all(layer.problem for layer in layers):
            raise NothingToReverse(f"no layer of {name} has a rule; add one with @racecar.rules.register(...)")
        weights.check_patterns(settings.weight, [prepared.layer_graph], self.model)
        left_out = weights.unmatched(settings.weight, [layer.names for layer in layers])
        if not prepared.terms and not any(prepared.frozen) and (left_out or not settings.off):
            raise NothingToReverse(
                f"weight {settings.weight!r} and mode {settings.mode!r} leave every layer of {name} that has a rule out"
            )


def plan_of(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings) -> Plan:
    """How every layer of a model would be reversed; frozen layers, too."""
    check_model(model)
    engine = Engine(model, settings)
    engine.start(args, kwargs, train=False)
    return engine.cache.plans[0].plan
