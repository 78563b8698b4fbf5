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
Burst = Callable[[int], float]
"""From a number of steps, as near as whole calls come, to the seconds of one step."""

LONG = {"cuda": 0.1, "cpu": 0.02}
"""Seconds that a burst takes at least: many steps are in flight, and one synchronisation is shared by them."""


def turned(names: Sequence[str], i: int) -> list[str]:
    """The order of round i: the next one begins."""
    start = i % len(names)
    return [*names[start:], *names[:start]]


def burst_length(burst: Burst, cuda: bool) -> int:
    """How many steps make a burst; 2 at least where they can be in flight together."""
    seconds = min(burst(1) for _ in range(2))
    fewest = 2 if cuda else 1
    return max(fewest, math.ceil(LONG["cuda" if cuda else "cpu"] / max(seconds, 1e-6)))


def burst_of(call: Call, steps: int, cuda: bool) -> Burst:
    """Bursts of a call that makes so many steps."""

    def burst(length: int) -> float:
        calls = max(1, round(length / steps))
        return one_burst(call, calls, cuda) / (calls * steps)

    return burst


def one_burst(call: Call, length: int, cuda: bool) -> float:
    """Seconds of a burst, with one synchronisation at its end. It follows a call that is not timed: another kind of
    step had the caches and the free memory before, on a GPU perhaps another process the device."""
    call()
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
    bursts: Mapping[str, Burst],
    rounds: int,
    length: int,
    advance: Callable[[int], None] = lambda i: None,
) -> dict[str, list[float]]:
    """Seconds per step, of every kind in every round.

    Args:
        bursts: by name.
        rounds: in each, every kind has one burst; the order turns from round to round.
        length: steps of a burst.
        advance: told how many rounds are done.
    """
    for burst in bursts.values():
        burst(1)
    seconds: dict[str, list[float]] = {name: [] for name in bursts}
    for i in range(rounds):
        for name in turned(list(bursts), i):
            seconds[name].append(bursts[name](length))
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
