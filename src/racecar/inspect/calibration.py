"""Statistics of the reverse data for a network that never kept any, so that single inputs can be run backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from racecar.inspect.invertibility import ways
from racecar.inspect.unwrap import unwrapped
from racecar.racecar import Racecar, call_arguments
from racecar.reverse.forward_pass import ForwardPass
from racecar.reverse.places import norms_at
from racecar.reverse.reading import Reading
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.support.eval_mode import eval_mode
from racecar.support.torch_private import map_tensors
from racecar.watch.dry_run import untouched, watch_forward


def calibrate(
    model: nn.Module, batches: Iterable[Any], inputs: Callable[[Any], Any] | None = None
) -> ReverseStatistics:
    """Find what batch norms see in the reverse pass, in evaluation, over some batches.

        found = calibrate(model, loader)
        invertibility(model, picture, statistics=found)  # (1, …): one sample is enough

    Args:
        model: any model that Racecar can plan; nothing in it is changed. A Racecar also keeps those of its own way, in
            the place of what it had, and uses them in ``reconstruct`` and its loss in evaluation.
        batches: of a loader; all of them count alike. Of a tuple or list, as (x, y), the first is the input.
        inputs: makes the model's input, as for ``Racecar``, from a batch, where it is not as above.

    Returns:
        Statistics for ``invertibility`` and ``leakage``: of every reverse pass that they run.
    """
    found, own, count = ReverseStatistics(), ReverseStatistics(), 0
    parameter = next(model.parameters(), None)
    device = None if parameter is None else parameter.device
    with eval_mode(unwrapped(model)):
        for batch in batches:
            given = inputs(batch) if inputs is not None else batch[0] if isinstance(batch, (tuple, list)) else batch
            given = map_tensors(lambda x: x.to(device), given)
            args, kwargs = call_arguments(given, unwrapped(model))
            forward = ForwardPass(unwrapped(model), args, kwargs)
            forward.gather(ways(forward), found)
            if isinstance(model, Racecar):
                gather(model, args, kwargs, own)
            count += 1
    if count == 0:
        raise ValueError("there are no batches to calibrate with")
    if isinstance(model, Racecar):
        model.reverse_statistics.take(own)
    return found


@torch.no_grad()
def gather(rr: Racecar, args: tuple[Any, ...], kwargs: Mapping[str, Any], statistics: ReverseStatistics) -> None:
    """Take the statistics of a Racecar's own reverse pass on a batch into ``statistics``, and make room for them."""
    reading = Reading(statistics, gather=True)
    with untouched(rr.model):
        _, trace = watch_forward(rr.model, args, kwargs, rr._engine.keep)
        prepared, trace = rr._engine.prepared_for(trace, args, kwargs, whole=True)
        norms = norms_at(prepared.needs_all.places, prepared.layer_graph.norms)
        rr.reverse_statistics.add(norms)
        statistics.add({key: norm._replace(momentum=0.0) for key, norm in norms.items()})
        prepared.rebuild([trace.calls[i] for i in trace.links], trace.kept_inputs, reading)
    statistics.update(reading.seen)
