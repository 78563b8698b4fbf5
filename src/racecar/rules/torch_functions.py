"""Tables of torch's functions: every spelling of one, and which one leaves its argument alone."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.support.torch_private import NN_FUNCTIONS


def forms(*names: str) -> tuple[Hashable, ...]:
    """Every spelling of operations, given by name (several in a string too): torch, functional, method, in place."""
    found: dict[int, Hashable] = {}
    for name in " ".join(names).split():
        for space in (torch, F, Tensor, NN_FUNCTIONS, torch.special):
            for spelling in (name, f"{name}_"):
                kind = getattr(space, spelling, None)
                if callable(kind) and not isinstance(kind, type):
                    found[id(kind)] = kind
    return tuple(found.values())


_FLAGS = ("requires_grad_", "share_memory_")
"""In-place by name, but they change no number."""


def _of_a_copy(func: Any) -> Any:
    """An in-place method as a function that leaves its argument alone."""

    def made(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return func(x.clone(), *args, **kwargs)

    return made


def _copied(to: Tensor, x: Tensor, non_blocking: bool = False) -> Tensor:
    """What ``to.copy_(x)`` makes of ``to``."""
    return x.to(to).expand_as(to)


def _out_of_place() -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    for space in (torch, F, Tensor, NN_FUNCTIONS):
        for name in dir(space):
            twin = name[:-1]
            if name.endswith("_") and not name.startswith("_") and callable(getattr(space, twin, None)):
                table[getattr(space, name)] = getattr(space, twin)
    for name in dir(Tensor):  # those without a twin, such as fill_diagonal_: made from a copy
        func = getattr(Tensor, name)
        if name.endswith("_") and not name.startswith("_") and callable(func) and name not in _FLAGS:
            table.setdefault(func, _of_a_copy(func))
    table[Tensor.copy_] = _copied
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
"""In-place functions and their twins that leave their argument alone."""

INPLACE_POSITION = _inplace_position()
"""Where ``inplace`` stands among the arguments of a functional."""

SPELT_OUT = {
    getattr(Tensor, name): getattr(torch, name)
    for name in dir(Tensor)
    if not name.startswith("_") and callable(getattr(Tensor, name)) and callable(getattr(torch, name, None))
}
"""Tensor methods and the functions that do the same, which every torch.compile can call."""

CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
"""One step of a recurrent network."""

RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu, *CELLS)
"""Recurrent networks, whole or one step of them."""

STATE_ACTIVATIONS = {
    torch.rnn_tanh: torch.tanh,
    torch.rnn_tanh_cell: torch.tanh,
    torch.rnn_relu: torch.relu,
    torch.rnn_relu_cell: torch.relu,
}
"""What makes their states from the sum of their projections, where that is one activation."""
