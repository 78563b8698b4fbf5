"""Which module owns the weight that a call uses, also where the weight is computed from a parameter."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from torch import nn

from racecar.support.torch_private import own_parameters
from racecar.watch.modules import ModuleWatch
from racecar.watch.trace import Trace


@dataclass(eq=False)
class Owner:
    """The module that owns a weight, and the parameter behind it."""

    name: str
    module: nn.Module
    attribute: str
    holder: nn.Module
    """The module that holds the parameter itself; for a parametrised weight that is the parametrisation."""
    parameter: str
    derived: bool = False
    """The weight is computed from the parameter (a parametrisation, a slice of it)."""
    also: tuple[Owner, ...] = ()
    """The owners of the other parameters that a derived weight is computed from."""
    cut_off: str = ""
    """Why no gradient of the weight reaches the parameter: "no_grad" or "detached"; empty if it does."""


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
        """The owner of a call's weight: of the first argument that is a parameter or was computed from some. The bias,
        which comes later, is not looked at."""
        caller = self.modules.caller(i) if self.modules else None
        for argument in self.trace.beside_data(i):
            owners_behind: list[Owner] = []
            reached = {id(tensor) for tensor in self.trace.roots([argument], self.owners, with_grad=True)}
            for tensor in self.trace.roots([argument], self.owners):
                owners = self.owners[id(tensor)]
                of_caller = [owner for owner in owners if owner.module is caller]
                no_embedding = [owner for owner in owners if not isinstance(owner.module, nn.Embedding)]
                owner = (of_caller or no_embedding or owners)[0]
                if tensor is argument:
                    return owner
                owners_behind.append(owner if id(tensor) in reached else replace(owner, cut_off="detached"))
            if owners_behind:
                return replace(owners_behind[0], derived=True, also=tuple(owners_behind[1:]))
        return None


def _owner(name: str, module: nn.Module, attribute: str, model: nn.Module) -> Owner:
    """The owner of a parameter: of one in a parametrisation, the module whose weight is parametrised."""
    match = re.fullmatch(r"(?:(.*)\.)?parametrizations\.([^.]+)(\..*)?", name)
    if match is None:
        return Owner(name, module, attribute, module, attribute)
    holder = match[1] or ""
    return Owner(holder, model.get_submodule(holder), match[2], module, attribute, derived=True)
