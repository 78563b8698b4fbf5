"""One recorded forward pass: every d_m of it can be read, and the reverse pass run from any layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.plan import Plan
from racecar.plan.routes import make_plan
from racecar.reverse import linear_mode, reverse
from racecar.reverse.engine import Engine
from racecar.reverse.input_activation import Activation
from racecar.reverse.needs import Needs
from racecar.reverse.norm_statistics import norms_at
from racecar.reverse.reading import Reading
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.reverse.settings import Settings
from racecar.reverse.tape import record
from racecar.reverse.values import Finder
from racecar.rules.context import BatchStatistics
from racecar.rules.operation import Operation
from racecar.support.torch_private import map_tensors
from racecar.watch.dry_run import untouched, watch_forward
from racecar.watch.guards import check_model
from racecar.watch.inputs import batch_size


class ForwardPass:
    """A forward pass without gradient, which leaves the model's buffers as they are, and the tensors in it.

    Args:
        model: any model that can be planned.
        args, kwargs: the arguments of the call.
        statistics: of the reverse data, which batch norms in evaluation use in the reverse pass; None: they use their
            own running statistics.
    """

    def __init__(
        self,
        model: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        statistics: ReverseStatistics | None = None,
    ) -> None:
        check_model(model)
        self.statistics = statistics
        kwargs = kwargs or {}
        engine = Engine(model, Settings(mode="layerwise"))
        engine.start(args, kwargs, train=False)
        layer_graph = engine.plans[0].layer_graph
        engine.keep |= frozenset(
            layer_graph.positions[value] for value in layer_graph.in_place.values
        )  # all that may be looked at
        with torch.no_grad(), untouched(model):
            if layer_graph.in_place.of_input:
                args, kwargs = map_tensors(torch.clone, (tuple(args), dict(kwargs)))
            self.output, trace = watch_forward(model, args, kwargs, engine.keep)
            prepared, trace = engine.prepared_for(trace, args, kwargs, whole=True)
        self.layer_graph = prepared.layer_graph
        self.calls = [trace.calls[i] for i in trace.links]
        self.inputs = trace.kept_inputs
        self._finder = Finder(self.layer_graph, self.calls, self.inputs)

    @property
    def layers(self) -> list[Layer]:
        return self.layer_graph.layers

    def value(self, value: int) -> Tensor:
        """The tensor of a value of the plan, such as ``layer.d`` or ``layer.out``."""
        return self._finder.tensor(value).detach()

    def operation(self, layer: Layer) -> Operation:
        """A layer's operation with the arguments of this pass."""
        return layer.op.operation(self.calls, layer.name)

    def plan(self, mode: str, last: Layer | None = None) -> Plan:
        """The plan of a reverse pass in some mode that begins at layer ``last``; None: at the model's last layer."""
        active = [last is None or layer.index <= last.index for layer in self.layers]
        return make_plan(self.layer_graph, mode, active)

    @torch.no_grad()
    def rebuild(self, plan: Plan, input_activation: Activation | None = None) -> dict[int, Tensor]:
        """Layer index → d'_m, for every layer that the reverse pass reaches."""
        reading = None if self.statistics is None else Reading(self.statistics, prefix=title(plan))
        return self._run(Needs(_passed(plan)), input_activation, reading)

    @torch.no_grad()
    def by_itself(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        """Layer index → (h, Ah, AᵀAh), as in mode "linear": h is the input of the weighted operation A."""
        needs, size = Needs(_passed(self.plan("linear"))), batch_size(self.inputs)
        tape = record(needs, self._finder, size, size)
        by_layer = {}
        for entry in needs.entries:
            assert entry.layer is not None
            by_layer[entry.layer.index] = (tape.tensors[entry.d], *linear_mode.ah_and_rebuilt(entry, tape))
        return by_layer

    @torch.no_grad()
    def gather(self, plans: Sequence[Plan], statistics: ReverseStatistics) -> None:
        """Run some reverse passes whose batch norms use the statistics of their own data, and add these to
        ``statistics``. Each plan has entries of its own there, and all passes count the same."""
        seen: dict[str, BatchStatistics] = {}
        for plan in plans:
            needs, reading = Needs(_passed(plan)), Reading(statistics, gather=True, prefix=title(plan))
            norms = norms_at(needs.places, self.layer_graph.norms)
            statistics.add({reading.prefix + key: norm._replace(momentum=0.0) for key, norm in norms.items()})
            self._run(needs, None, reading)
            seen |= reading.seen
        statistics.update(seen)

    def _run(self, needs: Needs, input_activation: Activation | None, reading: Reading | None) -> dict[int, Tensor]:
        size = batch_size(self.inputs)
        tape = record(needs, self._finder, size, size)
        return reverse.run(needs, tape, input_activation, reading)


def _passed(plan: Plan) -> list[Entry]:
    return [entry for entry in plan if entry.passed]


def title(plan: Plan) -> str:
    """A reverse pass in words: the prefix of the keys of its statistics."""
    passed = _passed(plan)
    return f"{plan.mode} from {passed[-1].name}/" if passed else ""
