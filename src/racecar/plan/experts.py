"""Weights that the data selects by an index, as in a mixture of experts.

The weights of all experts may be one parameter (experts, out, in), indexed by the router's choice:
``F.linear(tokens, weight[expert])``. What an index selects from a parameter is data if it is used as data (as from an
embedding), and a weight if it is used as the weight of a product. Each such product is a layer, whose samples are the
tokens of that expert.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from racecar.plan.graph import Op
from racecar.rules.operation import Path
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms
from racecar.watch.owners import Owner
from racecar.watch.trace import Trace, keeps_grad

_LOOKUPS = frozenset((Tensor.__getitem__, *forms("index_select")))
"""Functions that select from a parameter by an index."""
_PRODUCTS = frozenset((F.linear, *forms("matmul", "mm", "__matmul__", "bmm")))
"""Products, which may use a selected weight."""
_GROUPED = frozenset(forms("grouped_mm _grouped_mm"))
"""Products of tokens sorted by expert: the positions where experts begin are data, but integers."""

Links = tuple[tuple[Path, int], ...]
"""The data among a call's arguments: (place, number of the value)."""


class Lookup(NamedTuple):
    """A call in which the data selected a weight from a parameter."""

    ordinal: int
    """Of the call, among those that use data."""
    owner: Owner


class Tables:
    """The values of a pass that were selected from parameters: a product may use them as its weight."""

    def __init__(self) -> None:
        self._lookups: dict[int, Lookup] = {}

    def remember(self, op: Op, trace: Trace, call: int) -> None:
        """Remember an operation that selects a weight from a parameter, or rearranges a selected weight."""
        if op.role is Role.SOURCE and op.owner is not None and op.called in _LOOKUPS:
            if trace.tensor(op.outputs[0]).dim() > 1:
                self._lookups[op.outputs[0]] = Lookup(op.ordinal, op.owner)
        elif op.role in (Role.SHAPE, Role.PASS) and op.source in self._lookups:
            lookup = self._lookups[op.source]
            if not keeps_grad(trace.calls[call]):
                lookup = lookup._replace(owner=replace(lookup.owner, cut_off="detached"))
            self._lookups[op.outputs[0]] = lookup

    def without_weights(self, func: Any, links: Links, trace: Trace) -> tuple[Links, Lookup | None]:
        """The inputs of a product without a selected weight, and the lookup of that weight.

        For every call without such a weight: all inputs and None.
        """
        if func in _GROUPED:
            return tuple(link for link in links if trace.tensor(link[1]).is_floating_point()), None
        if func not in _PRODUCTS:
            return links, None
        weights = [value for _, value in links if value in self._lookups]
        data = tuple(link for link in links if link[1] not in self._lookups)
        return (data, self._lookups[weights[0]]) if len(weights) == 1 and len(data) == 1 else (links, None)
