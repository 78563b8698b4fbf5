"""Experts by index: weights that the data picks from a table of weights.

A mixture of experts keeps the weights of all experts in one parameter (experts, out, in), and the router's choice picks
from it: ``F.linear(tokens, weight[expert])``. What is picked from an embedding is data; what is picked as the weight of
a product is a weight. Each such product is a layer on the tokens that came to the expert.
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
_PRODUCTS = frozenset((F.linear, *forms("matmul", "mm", "__matmul__", "bmm")))
_GROUPED = frozenset(forms("grouped_mm _grouped_mm"))
"""Products of sorted tokens: where each expert's begin is data, but a whole number."""

Links = tuple[tuple[Path, int], ...]


class Lookup(NamedTuple):
    """Where the data picked a weight."""

    ordinal: int
    owner: Owner


class Tables:
    """Which values of a pass were picked from parameters, so that a product may use them as its weight."""

    def __init__(self) -> None:
        self._picked: dict[int, Lookup] = {}

    def see(self, op: Op, trace: Trace, call: int) -> None:
        """Remember what a call picked from a table, or made of that by turning it."""
        if op.role is Role.SOURCE and op.owner is not None and op.called in _LOOKUPS:
            if trace.tensor(op.outputs[0]).dim() > 1:
                self._picked[op.outputs[0]] = Lookup(op.ordinal, op.owner)
        elif op.role in (Role.SHAPE, Role.PASS) and op.source in self._picked:
            lookup = self._picked[op.source]
            if not keeps_grad(trace.calls[call]):
                lookup = lookup._replace(owner=replace(lookup.owner, cut_off="detached"))
            self._picked[op.outputs[0]] = lookup

    def without_weights(self, func: Any, links: Links, trace: Trace) -> tuple[Links, Lookup | None]:
        """The data of a product, and the lookup of its weight; all links and None of every other call."""
        if func in _GROUPED:
            return tuple(one for one in links if trace.tensor(one[1]).is_floating_point()), None
        if func not in _PRODUCTS:
            return links, None
        weights = [value for _, value in links if value in self._picked]
        data = tuple(one for one in links if one[1] not in self._picked)
        return (data, self._picked[weights[0]]) if len(weights) == 1 and len(data) == 1 else (links, None)
