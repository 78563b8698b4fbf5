"""One recorded forward pass: every d_m of it can be read, and the reverse pass run from any layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.plan import Plan
from racecar.plan.routes import make_plan
from racecar.reverse import linear_mode, reverse
from racecar.reverse.eager_step import watch_all
from racecar.reverse.engine import Engine
from racecar.reverse.input_activation import Activation
from racecar.reverse.needs import Needs, needs_of
from racecar.reverse.norm_statistics import PassStatistics, norms_by_key
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.reverse.settings import Settings
from racecar.reverse.slicing import BatchSlice
from racecar.reverse.tape import Tape, record
from racecar.rules.context import BatchStatistics
from racecar.rules.operation import Operation
from racecar.support.torch_private import map_tensors
from racecar.watch.calls import Call
from racecar.watch.dry_run import untouched
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
        layer_graph = engine.cache.plans[0].layer_graph
        # Any value may be asked for, so all that are changed in place later have to be cloned.
        engine.cache.clone |= frozenset(layer_graph.positions[value] for value in layer_graph.in_place.values)
        with torch.no_grad(), untouched(model):
            if layer_graph.in_place.of_input:
                args, kwargs = map_tensors(torch.clone, (tuple(args), dict(kwargs)))
            self.output, _, self._values = watch_all(engine, args, kwargs)
        self.layer_graph = self._values.layer_graph
        self.calls = cast(list[Call], self._values.calls)
        """The calls of the pass, by the ordinal of their operation."""

    @property
    def layers(self) -> list[Layer]:
        return self.layer_graph.layers

    def value(self, value: int) -> Tensor:
        """The tensor of a value of the plan, such as ``layer.d`` or ``layer.out``."""
        return self._values.tensor(value).detach()

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
        statistics = None if self.statistics is None else PassStatistics(self.statistics, prefix=title(plan))
        return self._run(needs_of(_passed(plan)), input_activation, statistics)

    @torch.no_grad()
    def by_itself(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        """Layer index → (h, Ah, AᵀAh), as in mode "linear": h is the input of the weighted operation A."""
        needs = needs_of(_passed(self.plan("linear")))
        tape = self._tape(needs)
        by_layer = {}
        for entry in needs.entries:
            assert entry.layer is not None
            by_layer[entry.layer.index] = (tape.tensors[entry.d], *linear_mode.ah_and_rebuilt(entry, tape))
        return by_layer

    @torch.no_grad()
    def gather(self, plans: Sequence[Plan], statistics: ReverseStatistics) -> None:
        """Run some reverse passes whose batch norms use the statistics of their own data, and add these to
        ``statistics``. Each plan has entries of its own there, and all passes count the same."""
        recorded: dict[str, BatchStatistics] = {}
        for plan in plans:
            needs = needs_of(_passed(plan))
            of_pass = PassStatistics(statistics, in_evaluation=True, prefix=title(plan))
            norms = norms_by_key(needs.norms, self.layer_graph.norms)
            statistics.add({of_pass.prefix + key: norm._replace(momentum=0.0) for key, norm in norms.items()})
            self._run(needs, None, of_pass)
            recorded |= of_pass.recorded
        statistics.update(recorded)

    def _run(
        self, needs: Needs, input_activation: Activation | None, statistics: PassStatistics | None
    ) -> dict[int, Tensor]:
        return reverse.run(needs, self._tape(needs), input_activation, statistics)

    def _tape(self, needs: Needs) -> Tape:
        size = batch_size(self._values.inputs)
        return record(needs, self._values, BatchSlice(size, size))


def _passed(plan: Plan) -> list[Entry]:
    return [entry for entry in plan if entry.passed]


def title(plan: Plan) -> str:
    """A reverse pass in words: the prefix of the keys of its statistics."""
    passed = _passed(plan)
    return f"{plan.mode} from {passed[-1].name}/" if passed else ""
