"""Recurrent layers taken apart into their projections, as attention is.

torch runs a whole RNN, LSTM or GRU as one call. Its weighted operations are the projections W_ih x_t + b_ih and
W_hh h_(t−1) + b_hh (and W_hr m_t of an LSTM with ``proj_size``), which a join adds and gates: each is a layer that ends
before the join, the same as in a cell that is written by hand. With the states of the forward pass known, each is one
matrix product over all time steps. The call itself stays torch's own, layer by layer where several are stacked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.rules.torch_functions import CELLS, STATE_ACTIVATIONS
from racecar.support.compiling import compiling


class Recorder(Protocol):
    """What watches a forward pass: while it is entered, every call is recorded."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: Any) -> Any: ...

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Remember a call that was not made while it was entered."""


def take_apart(watch: Recorder, func: Any, args: Sequence[Any]) -> Any:
    """Make a call of a recurrent network, or of one step of it, and record its projections beside it."""
    return _cell(watch, func, args) if func in CELLS else _sequence(watch, func, args)


def _cell(watch: Recorder, func: Any, args: Sequence[Any]) -> Any:
    """One step of a recurrent cell: its own call, and its projections beside it."""
    x, hx, w_ih, w_hh, b_ih, b_hh = args
    h, *c = hx if isinstance(hx, (tuple, list)) else (hx,)
    with watch:
        joined = [F.linear(x, w_ih, b_ih), F.linear(h, w_hh, b_hh), *c]
    made = func(*args)
    watch.record(func, (*joined, h) if func is torch.gru_cell else tuple(joined), {}, made)
    _activate(watch, func, (made,))
    return made


class _Sequences(NamedTuple):
    """The arguments of a recurrent function."""

    x: Tensor
    sizes: Tensor | None
    """Samples in each time step, of packed sequences."""
    hx: tuple[Tensor, ...]
    """The first states, (layers · directions, N, …)."""
    weights: Sequence[Tensor]
    biased: bool
    layers: int
    dropout: float
    train: bool
    both: bool
    """Whether it runs in both directions."""
    batch_first: bool = False


def _read(args: Sequence[Any]) -> _Sequences:
    x, *rest = args
    sizes = None if isinstance(args[3], bool) else rest.pop(0)
    hx, *others = rest
    return _Sequences(x, sizes, (hx,) if isinstance(hx, Tensor) else tuple(hx), *others)


def _sequence(watch: Recorder, func: Any, args: Sequence[Any]) -> Any:
    """A recurrent network: its own call for each of its layers, and its projections beside it."""
    a = _read(args)
    directions = 1 + a.both
    each = len(a.weights) // a.layers
    x, last = a.x, []
    for i in range(a.layers):
        states = tuple(one[i * directions : (i + 1) * directions] for one in a.hx)
        layer = a._replace(x=x, hx=states, weights=a.weights[i * each : (i + 1) * each], layers=1, dropout=0.0)
        made = _layer(watch, func, layer, args if a.layers == 1 else None)
        x = made[0]
        last.append(made[1:])
        if i < a.layers - 1 and a.dropout > 0:
            with watch:
                x = F.dropout(x, a.dropout, a.train)
    if a.layers == 1:
        return made
    with watch:
        return (x, *(torch.cat(one) for one in zip(*last, strict=True)))


def _layer(watch: Recorder, func: Any, a: _Sequences, args: Sequence[Any] | None) -> Any:
    """One layer in all directions. ``args``: of the call, where it is the model's own."""
    directions = 1 + a.both
    each = len(a.weights) // directions
    weights = [a.weights[i * each : (i + 1) * each] for i in range(directions)]
    biases = [own[2:4] if a.biased else (None, None) for own in weights]
    with watch:
        joined = [F.linear(a.x, own[0], bias[0]) for own, bias in zip(weights, biases, strict=True)]
    made = func(*args) if args is not None else _alone(func, a)
    watch.record(func, (*joined, *a.hx), {}, made)
    time = 1 if a.batch_first else 0
    sizes = None if a.sizes is None else a.sizes.tolist()
    back: list[Tensor] = []
    for i, (h, own, bias) in enumerate(zip(made[0].chunk(directions, -1), weights, biases, strict=True)):
        before = _put_together(_before(_steps(h, sizes, time), a.hx[0][i], i == 1), sizes, time)
        watch.record(STATE_ACTIVATIONS.get(func, func), (made[0],), {}, before)
        with watch:
            back.append(F.linear(before, own[1], bias[1]))
        if len(own) % 2:  # the last one is W_hr
            gates = _steps(joined[i] + back[-1], sizes, time)
            hidden = _put_together(_hidden(gates, a.hx[1][i], i == 1), sizes, time)
            watch.record(func, (back[-1],), {}, hidden)
            with watch:
                back.append(F.linear(hidden, own[-1]))
    watch.record(func, (*made, *back), {}, made)
    _activate(watch, func, made)
    return made


def _activate(watch: Recorder, func: Any, made: Sequence[Tensor]) -> None:
    """The activation that made the states, where a single one did: the layer above applies it again."""
    if func in STATE_ACTIVATIONS:
        for one in made:
            watch.record(STATE_ACTIVATIONS[func], (one,), {}, one)


def _alone(func: Any, a: _Sequences) -> Any:
    """The call of one layer of several."""
    hx = a.hx if func is torch.lstm else a.hx[0]
    options = (a.biased, a.layers, a.dropout, a.train, a.both)
    args = (a.x, hx, a.weights, *options, a.batch_first) if a.sizes is None else (a.x, a.sizes, hx, a.weights, *options)
    if compiling() or not a.x.is_cuda:
        return func(*args)
    with warnings.catch_warnings():  # they lie in memory beside those of the other layers
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return func(*args)


def _steps(x: Tensor, sizes: list[int] | None, time: int) -> Sequence[Tensor]:
    """One (n, …) for each time step."""
    return x.unbind(time) if sizes is None else x.split(sizes)


def _put_together(steps: Sequence[Tensor], sizes: list[int] | None, time: int) -> Tensor:
    return torch.stack(list(steps), time) if sizes is None else torch.cat(list(steps))


def _fit(state: Tensor, first: Tensor, samples: int) -> Tensor:
    """The state of so many samples: packed sequences end, and in the other direction begin, at different times."""
    known = state.shape[0]
    if known == samples:
        return state
    return state[:samples] if known > samples else torch.cat([state, first[known:samples]])


def _before(states: Sequence[Tensor], first: Tensor, backward: bool) -> list[Tensor]:
    """h_(t−1) for each h_t, with ``first`` (N, …) before all; h_(t+1) in the other direction."""
    first = first.to(states[0].dtype)
    lengths = [one.shape[0] for one in states]
    if backward:
        following = [*states[1:], first[:0]]
        return [_fit(one, first, n) for one, n in zip(following, lengths, strict=True)]
    return [_fit(one, first, n) for one, n in zip([first, *states[:-1]], lengths, strict=True)]


def _hidden(gates: Sequence[Tensor], first: Tensor, backward: bool) -> list[Tensor]:
    """What an LSTM projects, m_t = o_t tanh(c_t), from its gates before their activations and c_0."""
    found: list[Tensor] = []
    c = first[:0]
    for gate in reversed(gates) if backward else gates:
        i, f, g, o = gate.chunk(4, -1)
        c = first if not found and not backward else c
        c = f.sigmoid() * _fit(c, first, gate.shape[0]) + i.sigmoid() * g.tanh()
        found.append(o.sigmoid() * c.tanh())
    return found[::-1] if backward else found
