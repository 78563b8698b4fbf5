"""Measure the batch-norm statistics of the reverse pass, so that single inputs can be run backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from racecar.inspect.invertibility import measured_plans
from racecar.inspect.unwrap import unwrapped
from racecar.racecar import Racecar, call_arguments
from racecar.reverse.eager_step import rebuild, watch_all
from racecar.reverse.forward_pass import ForwardPass
from racecar.reverse.norm_statistics import PassStatistics, norms_by_key
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.support.eval_mode import eval_mode
from racecar.support.torch_private import map_tensors
from racecar.watch.dry_run import untouched


def calibrate(
    model: nn.Module, batches: Iterable[Any], inputs: Callable[[Any], Any] | None = None
) -> ReverseStatistics:
    """Measure mean and variance of every batch norm's input in the reverse pass, averaged over some batches.

        statistics = calibrate(model, loader)
        invertibility(model, picture, statistics=statistics)  # (1, …): one sample is enough

    Args:
        model: any model that Racecar can plan; it is not changed. A Racecar also gets the statistics of its own reverse
            pass, in place of earlier ones, and uses them in ``reconstruct`` and in its loss in evaluation.
        batches: batches, as of a DataLoader; each counts the same. From a tuple or list such as (x, y) the first
            element is taken as the input.
        inputs: function from a batch to the model's input (as for ``Racecar``), for batches of another form.

    Returns:
        Statistics to give to ``invertibility`` and ``leakage``, for every reverse pass that they run.
    """
    statistics, own_statistics, count = ReverseStatistics(), ReverseStatistics(), 0
    parameter = next(model.parameters(), None)
    device = None if parameter is None else parameter.device
    with eval_mode(unwrapped(model)):
        for batch in batches:
            x = inputs(batch) if inputs is not None else batch[0] if isinstance(batch, (tuple, list)) else batch
            x = map_tensors(lambda tensor: tensor.to(device), x)
            args, kwargs = call_arguments(x, unwrapped(model))
            forward = ForwardPass(unwrapped(model), args, kwargs)
            forward.gather(measured_plans(forward), statistics)
            if isinstance(model, Racecar):
                gather(model, args, kwargs, own_statistics)
            count += 1
    if count == 0:
        raise ValueError("there are no batches to calibrate with")
    if isinstance(model, Racecar):
        model.reverse_statistics.replace(own_statistics)
    return statistics


@torch.no_grad()
def gather(rr: Racecar, args: tuple[Any, ...], kwargs: Mapping[str, Any], statistics: ReverseStatistics) -> None:
    """Add one batch's batch-norm statistics, from a Racecar's own reverse pass, to ``statistics``.

    Args:
        rr: the Racecar; norms that its own ``reverse_statistics`` do not know yet are added to them.
        args, kwargs: the arguments of the model's call.
        statistics: what is updated.
    """
    of_pass = PassStatistics(statistics, in_evaluation=True)
    with untouched(rr.model):
        _, prepared, values = watch_all(rr._engine, args, kwargs)
        norms = norms_by_key(prepared.needs_to_rebuild.norms, prepared.layer_graph.norms)
        rr.reverse_statistics.add(norms)
        statistics.add({key: norm._replace(momentum=0.0) for key, norm in norms.items()})
        rebuild(prepared, values, of_pass)
    statistics.update(of_pass.recorded)
