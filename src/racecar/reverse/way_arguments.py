"""The arguments of :meth:`racecar.Racecar.reverse`, checked, and the way that they ask for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from racecar.plan.joins import Given
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.outputs import named_tensors
from racecar.plan.walk_back import way_back
from racecar.plan.way_back import WayBack

GivenTensors = Mapping[str, Tensor | Sequence[Tensor | None]]
"""Name of a join → the tensor that is given there; or one entry for each tensor that it joins, None for the one that
is not given."""


def plan_of_way(
    layer_graph: LayerGraph,
    outputs: Sequence[str | int] | None,
    to: str | None,
    start: str | None,
    given: Collection[str],
) -> WayBack:
    """The way of a reverse pass; ``outputs``: names or indices of those that y would give, None for all."""
    names = [output.name for output in layer_graph.outputs]
    for name in outputs or ():
        if str(name) not in names:
            raise ValueError(f"the model has no output {name!r}; its outputs are {', '.join(names)}")
    chosen = None if outputs is None else tuple(sorted(names.index(str(name)) for name in outputs))
    return find_way(layer_graph, chosen, to, start, dict.fromkeys(given, True))


def find_way(
    layer_graph: LayerGraph,
    outputs: tuple[int, ...] | None,
    to: str | None,
    start: str | None,
    given: Mapping[str, Any],
) -> WayBack:
    """The way back with these arguments, found once for each of them. ``given``: tensors, or True in place of each."""
    patterns = {name: _pattern(value) for name, value in given.items()}
    key = (outputs, to, start, tuple(patterns.items()))
    way = layer_graph.ways.get(key)
    if way is None:
        way = layer_graph.ways[key] = way_back(layer_graph, outputs, to, start, patterns)
    return way


def checked_given(given: Any) -> dict[str, Any]:
    """The argument ``given``, checked."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"given must be a dict from the name of a join to a tensor, not {type(given).__name__}")
    for name, value in given.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        if not all(part is None or isinstance(part, Tensor) for part in parts) or value is None:
            raise TypeError(f"given[{name!r}] must be a tensor or a tuple of tensors and one None")
    return dict(given)


def _pattern(value: Any) -> Given:
    return tuple(part is not None for part in value) if isinstance(value, (tuple, list)) else None


def chosen_outputs(layer_graph: LayerGraph, y: Any) -> dict[int, Tensor]:
    """Index of each output that y gives → its tensor."""
    names = [output.name for output in layer_graph.outputs]
    listed, tensors = ", ".join(names), dict(named_tensors(y))
    if not tensors or not names:
        problem = f"not {type(y).__name__}" if names else "but the model returns none that was seen"
        raise ValueError(f"y must hold a floating-point tensor of the shape of an output, {problem}")
    if "" in tensors and len(names) == 1:
        return {0: tensors[""]}
    if "" in tensors:
        raise ValueError(
            f"the model has {len(names)} outputs ({listed}): give all of them as the model returns them, or some by "
            f"name, as {{{names[0]!r}: y}}"
        )
    for name in tensors:
        if name not in names:
            raise ValueError(f"y has an output {name!r}, but those of the model are: {listed or 'one tensor'}")
    ends = [int(first) for name in names if (first := name.partition(".")[0]).isdigit()]
    if isinstance(y, (tuple, list)) and ends and len(y) <= max(ends):
        raise ValueError(
            f"y has {len(y)} entries, but the outputs of the model are {listed}: give None where one is not followed, "
            "or a dict of those that are"
        )
    return {i: tensors[name] for i, name in enumerate(names) if name in tensors}
