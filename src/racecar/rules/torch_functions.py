"""Tables of torch's functions: all forms of an operation, in-place functions, recurrent networks."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.support.torch_private import NN_FUNCTIONS


def forms(*names: str) -> tuple[Hashable, ...]:
    """All functions with the given names, of which a string may contain several: in torch, in torch.nn.functional, as
    methods of Tensor, in place."""
    functions: dict[int, Hashable] = {}
    for name in " ".join(names).split():
        for space in (torch, F, Tensor, NN_FUNCTIONS, torch.special):
            for spelling in (name, f"{name}_"):
                kind = getattr(space, spelling, None)
                if callable(kind) and not isinstance(kind, type):
                    functions[id(kind)] = kind
    return tuple(functions.values())


_FLAGS = ("requires_grad_", "share_memory_")
"""Methods that end in ``_`` as in-place ones do, but change no values."""


def _on_a_copy(func: Any) -> Any:
    """An in-place method as a function that changes a copy of its argument."""

    def function(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x.clone(), *args, **kwargs)

    return function


def _copy(to: Tensor, x: Tensor, non_blocking: bool = False) -> Tensor:
    """The result of ``to.copy_(x)``, as a new tensor."""
    return x.to(to).expand_as(to)


def _out_of_place() -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    for space in (torch, F, Tensor, NN_FUNCTIONS):
        for name in dir(space):
            base = name[:-1]
            if name.endswith("_") and not name.startswith("_") and callable(getattr(space, base, None)):
                table[getattr(space, name)] = getattr(space, base)
    for name in dir(Tensor):  # methods without an out-of-place version, such as fill_diagonal_
        func = getattr(Tensor, name)
        if name.endswith("_") and not name.startswith("_") and callable(func) and name not in _FLAGS:
            table.setdefault(func, _on_a_copy(func))
    table[Tensor.copy_] = _copy
    for name in ("add", "sub", "mul", "truediv"):
        table[getattr(Tensor, f"__i{name}__")] = getattr(Tensor, f"__{name}__")
    return table


def _inplace_position() -> dict[Any, int]:
    table = {}
    for name in dir(F):
        func = getattr(F, name)
        if inspect.isfunction(func) and "inplace" in inspect.signature(func).parameters:
            table[func] = list(inspect.signature(func).parameters).index("inplace")
    return table


OUT_OF_PLACE = _out_of_place()
"""In-place function → the function that does the same out of place."""

INPLACE_POSITION = _inplace_position()
"""Function of torch.nn.functional → the position of its argument ``inplace``."""

METHOD_AS_FUNCTION = {
    getattr(Tensor, name): getattr(torch, name)
    for name in dir(Tensor)
    if not name.startswith("_") and callable(getattr(Tensor, name)) and callable(getattr(torch, name, None))
}
"""Tensor method → the function in torch that does the same: torch.compile can call it in every version of torch."""

CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
"""One step of a recurrent network."""

RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu, *CELLS)
"""Recurrent networks, and one step of them."""

STATE_ACTIVATIONS = {
    torch.rnn_tanh: torch.tanh,
    torch.rnn_tanh_cell: torch.tanh,
    torch.rnn_relu: torch.relu,
    torch.rnn_relu_cell: torch.relu,
}
"""Recurrent network → the activation that makes its state from the sum of its projections, if it is only that."""
