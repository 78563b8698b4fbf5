"""Whose weight it is: from the tensors of a call to the module that owns the parameter behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from torch import nn

from racecar.support.torch_private import own_parameters
from racecar.watch.modules import ModuleWatch
from racecar.watch.trace import Trace


@dataclass(eq=False)
class Owner:
    """The module that owns a weight."""

    name: str
    module: nn.Module
    attribute: str
    holder: nn.Module
    """The module that holds the parameter itself: of a parametrised weight, its parametrisation."""
    parameter: str
    derived: bool = False
    """The weight is computed from the parameter (a parametrisation, a slice of it)."""
    also: tuple[Owner, ...] = ()
    """Of the other parameters that such a weight is computed from."""
    cut_off: str = ""
    """Why no gradient reaches the parameter from there: "no_grad" or "detached"; empty if one does."""


class Weights:
    """Finds the module that owns the weight of a call."""

    def __init__(self, trace: Trace, model: nn.Module, modules: ModuleWatch | None) -> None:
        self.trace, self.modules = trace, modules
        self.owners: dict[int, list[Owner]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            for attribute, parameter in own_parameters(module).items():
                if parameter is not None:
                    self.owners.setdefault(id(parameter), []).append(_owner(name, module, attribute, model))

    def of_constant(self, i: int) -> Owner | None:
        """The owner of the second argument of a call that sees no data."""
        call = self.trace.calls[i]
        weight = call.args[1] if len(call.args) > 1 else call.kwargs.get("weight")
        return next(iter(self.owners.get(id(weight), ())), None)

    def of_call(self, i: int) -> Owner | None:
        """The owner of the first parameter that a call's arguments are or were made of, with those beside it in that
        argument: not of a bias."""
        caller = self.modules.caller(i) if self.modules else None
        for argument in self.trace.beside_data(i):
            found: list[Owner] = []
            reached = {id(tensor) for tensor in self.trace.roots([argument], self.owners, with_grad=True)}
            for tensor in self.trace.roots([argument], self.owners):
                owners = self.owners[id(tensor)]
                mine = [owner for owner in owners if owner.module is caller]
                apart = [owner for owner in owners if not isinstance(owner.module, nn.Embedding)]
                owner = (mine or apart or owners)[0]
                if tensor is argument:
                    return owner
                found.append(owner if id(tensor) in reached else replace(owner, cut_off="detached"))
            if found:
                return replace(found[0], derived=True, also=tuple(found[1:]))
        return None


def _owner(name: str, module: nn.Module, attribute: str, model: nn.Module) -> Owner:
    """A parametrised weight belongs to the module that it parametrises."""
    match = re.fullmatch(r"(?:(.*)\.)?parametrizations\.([^.]+)(\..*)?", name)
    if match is None:
        return Owner(name, module, attribute, module, attribute)
    holder = match[1] or ""
    return Owner(holder, model.get_submodule(holder), match[2], module, attribute, derived=True)
