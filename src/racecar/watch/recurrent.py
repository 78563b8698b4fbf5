"""Recurrent layers (RNN, LSTM, GRU), recorded as separate projections instead of one call.

torch runs a whole recurrent network as one call. Its weighted operations are the projections W_ih x_t + b_ih and
W_hh h_(t−1) + b_hh (and W_hr m_t of an LSTM with ``proj_size``), whose results a join adds and gates. Each projection
becomes a layer that ends before the join, as in a cell that is written by hand. The states h_t are known from the
forward pass, so each projection is one matrix product over all time steps. The output is that of torch's own call; a
stack of several layers is called layer by layer.
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
    """A context manager that records every torch call made while it is entered."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: Any) -> Any: ...

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Record a call that was made while the recorder was not entered."""


def take_apart(watch: Recorder, func: Any, args: Sequence[Any]) -> Any:
    """The result of a call of a recurrent network or cell; the call and its projections are recorded.

    Args:
        watch: the recorder, which is not entered.
        func, args: the call.
    """
    return _run_cell(watch, func, args) if func in CELLS else _run_network(watch, func, args)


def _run_cell(watch: Recorder, func: Any, args: Sequence[Any]) -> Any:
    """The new state from one step of a recurrent cell."""
    x, hx, w_ih, w_hh, b_ih, b_hh = args
    h, *c = hx if isinstance(hx, (tuple, list)) else (hx,)
    with watch:
        joined = [F.linear(x, w_ih, b_ih), F.linear(h, w_hh, b_hh), *c]
    state = func(*args)
    watch.record(func, (*joined, h) if func is torch.gru_cell else tuple(joined), {}, state)
    _record_activation(watch, func, (state,))
    return state


class _Arguments(NamedTuple):
    """The arguments of torch's function for a recurrent network."""

    x: Tensor
    sizes: Tensor | None
    """The number of samples in each time step of packed sequences; None: they are not packed."""
    hx: tuple[Tensor, ...]
    """The initial states, (layers · directions, N, …)."""
    weights: Sequence[Tensor]
    has_bias: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False


def _read(args: Sequence[Any]) -> _Arguments:
    """The arguments by name. A call with packed sequences has one more, in second place."""
    x, *rest = args
    sizes = None if isinstance(args[3], bool) else rest.pop(0)
    hx, *others = rest
    return _Arguments(x, sizes, (hx,) if isinstance(hx, Tensor) else tuple(hx), *others)


def _run_network(watch: Recorder, func: Any, args: Sequence[Any]) -> Any:
    """The output and last states of a recurrent network, called layer by layer."""
    a = _read(args)
    directions = 1 + a.bidirectional
    per_layer = len(a.weights) // a.layers
    x, last_states = a.x, []
    for i in range(a.layers):
        hx = tuple(state[i * directions : (i + 1) * directions] for state in a.hx)
        weights = a.weights[i * per_layer : (i + 1) * per_layer]
        layer = a._replace(x=x, hx=hx, weights=weights, layers=1, dropout=0.0)
        results = _run_layer(watch, func, layer, args if a.layers == 1 else None)
        x = results[0]
        last_states.append(results[1:])
        if i < a.layers - 1 and a.dropout > 0:
            with watch:
                x = F.dropout(x, a.dropout, a.train)
    if a.layers == 1:
        return results
    with watch:
        return (x, *(torch.cat(states) for states in zip(*last_states, strict=True)))


def _run_layer(watch: Recorder, func: Any, a: _Arguments, args: Sequence[Any] | None) -> Any:
    """The output and last states of one layer, in one direction or in both.

    Args:
        watch, func: as in :func:`take_apart`.
        a: the arguments of this layer alone.
        args: the arguments of the model's call if the network has one layer; else None.
    """
    directions = 1 + a.bidirectional
    per_direction = len(a.weights) // directions
    weights = [a.weights[i * per_direction : (i + 1) * per_direction] for i in range(directions)]
    biases = [weight[2:4] if a.has_bias else (None, None) for weight in weights]
    with watch:
        inputs = [F.linear(a.x, weight[0], bias[0]) for weight, bias in zip(weights, biases, strict=True)]
    results = func(*args) if args is not None else _call_layer(func, a)
    watch.record(func, (*inputs, *a.hx), {}, results)
    time = 1 if a.batch_first else 0
    sizes = None if a.sizes is None else a.sizes.tolist()
    projections: list[Tensor] = []
    for i, (h, weight, bias) in enumerate(zip(results[0].chunk(directions, -1), weights, biases, strict=True)):
        previous = _join_steps(_previous_states(_split_steps(h, sizes, time), a.hx[0][i], i == 1), sizes, time)
        watch.record(STATE_ACTIVATIONS.get(func, func), (results[0],), {}, previous)
        with watch:
            projections.append(F.linear(previous, weight[1], bias[1]))
        if len(weight) % 2:  # the last one is W_hr
            gates = _split_steps(inputs[i] + projections[-1], sizes, time)
            hidden = _join_steps(_hidden(gates, a.hx[1][i], i == 1), sizes, time)
            watch.record(func, (projections[-1],), {}, hidden)
            with watch:
                projections.append(F.linear(hidden, weight[-1]))
    watch.record(func, (*results, *projections), {}, results)
    _record_activation(watch, func, results)
    return results


def _record_activation(watch: Recorder, func: Any, states: Sequence[Tensor]) -> None:
    """Record the activation (tanh or ReLU) of an RNN's states as a call: the reverse pass applies it again."""
    if func in STATE_ACTIVATIONS:
        for state in states:
            watch.record(STATE_ACTIVATIONS[func], (state,), {}, state)


def _call_layer(func: Any, a: _Arguments) -> Any:
    """The result of torch's function for a single layer of a stack."""
    hx = a.hx if func is torch.lstm else a.hx[0]
    options = (a.has_bias, a.layers, a.dropout, a.train, a.bidirectional)
    args = (a.x, hx, a.weights, *options, a.batch_first) if a.sizes is None else (a.x, a.sizes, hx, a.weights, *options)
    if compiling() or not a.x.is_cuda:
        return func(*args)
    with warnings.catch_warnings():  # one chunk of memory holds the weights of all layers
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return func(*args)


def _split_steps(x: Tensor, sizes: list[int] | None, time: int) -> Sequence[Tensor]:
    """The tensors (n, …) of each time step, from one tensor with a dimension ``time`` or from packed sequences."""
    return x.unbind(time) if sizes is None else x.split(sizes)


def _join_steps(steps: Sequence[Tensor], sizes: list[int] | None, time: int) -> Tensor:
    """The inverse of :func:`_split_steps`."""
    return torch.stack(list(steps), time) if sizes is None else torch.cat(list(steps))


def _fit(state: Tensor, first: Tensor, samples: int) -> Tensor:
    """A state (n, …) cut to fewer samples, or extended to more by their initial states: packed sequences end, and in
    the other direction begin, at different times."""
    present = state.shape[0]
    if present == samples:
        return state
    return state[:samples] if present > samples else torch.cat([state, first[present:samples]])


def _previous_states(states: Sequence[Tensor], first: Tensor, backward: bool) -> list[Tensor]:
    """h_(t−1) for each h_t, ``first`` (N, …) for the first of them; h_(t+1) in the backward direction."""
    first = first.to(states[0].dtype)
    lengths = [state.shape[0] for state in states]
    shifted = [*states[1:], first[:0]] if backward else [first, *states[:-1]]
    return [_fit(state, first, n) for state, n in zip(shifted, lengths, strict=True)]


def _hidden(gates: Sequence[Tensor], first: Tensor, backward: bool) -> list[Tensor]:
    """m_t = o_t tanh(c_t), which an LSTM with ``proj_size`` projects, for each time step.

    Args:
        gates: the sums (n, 4 · hidden) that enter the gates' activations, for each time step.
        first: c_0, (N, hidden).
        backward: whether the direction is backward in time.
    """
    hidden: list[Tensor] = []
    c = first[:0]
    for gate in reversed(gates) if backward else gates:
        i, f, g, o = gate.chunk(4, -1)
        c = first if not hidden and not backward else c
        c = f.sigmoid() * _fit(c, first, gate.shape[0]) + i.sigmoid() * g.tanh()
        hidden.append(o.sigmoid() * c.tanh())
    return hidden[::-1] if backward else hidden
