"""Step times: in interleaved bursts, so that all kinds of steps share the machine's moods."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Call = Callable[[], Any]

LONG = {"cuda": 0.1, "cpu": 0.02}
"""Seconds that a burst takes at least: many steps are in flight, and one synchronisation is shared by them."""


def turned(names: Sequence[str], i: int) -> list[str]:
    """The order of round i: the next one begins."""
    start = i % len(names)
    return [*names[start:], *names[:start]]


def burst_length(call: Call, cuda: bool) -> int:
    """How many calls make a burst; 2 at least where they can be in flight together."""
    seconds = min(one_burst(call, 1, cuda) for _ in range(2))
    fewest = 2 if cuda else 1
    return max(fewest, math.ceil(LONG["cuda" if cuda else "cpu"] / max(seconds, 1e-6)))


def one_burst(call: Call, length: int, cuda: bool) -> float:
    """Seconds of a burst, with one synchronisation at its end."""
    if not cuda:
        began = time.perf_counter()
        for _ in range(length):
            call()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(length):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def interleaved(
    calls: Mapping[str, tuple[Call, int]],
    rounds: int,
    burst: int,
    cuda: bool,
    advance: Callable[[int], None] = lambda i: None,
) -> dict[str, list[float]]:
    """Seconds per step, of every kind in every round.

    Args:
        calls: by name, what to call and how many steps a call makes.
        rounds: in each, every kind has one burst; the order turns from round to round.
        burst: steps of a burst, as near as whole calls come.
        cuda: measure by events on the device.
        advance: told how many rounds are done.
    """
    lengths = {name: max(1, round(burst / steps)) for name, (_, steps) in calls.items()}
    for call, _ in calls.values():
        one_burst(call, 1, cuda)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in turned(list(calls), i):
            call, steps = calls[name]
            seconds[name].append(one_burst(call, lengths[name], cuda) / (lengths[name] * steps))
        advance(i + 1)
    return seconds


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def captured(step: Call, clear: Call, pool: Any) -> Call:
    """A step as one CUDA graph; calling the result replays it.

    Graphs of one pool share their memory: none needs what another left, as long as they run one after the other.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # capturing wants a step that ran on a stream of its own before
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    clear()
    return graph.replay


@contextmanager
def fast_device(cuda: bool) -> Iterator[None]:
    """What training on a GPU is usually set to: TF32 for float32 products, and the quickest convolutions."""
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
