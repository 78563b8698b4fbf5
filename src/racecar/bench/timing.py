"""Step times. All steps take turns in short bursts, so that a slow moment of the machine meets all of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Step = Callable[[], Any]
Burst = Callable[[int], float]
"""Runs about so many steps, one after the other, and returns the seconds of one."""

SHORTEST = {"cuda": 0.1, "cpu": 0.02}
"""Least seconds of a burst: many steps are in flight, and share one synchronisation."""


def burst_of(call: Step, steps: int, cuda: bool) -> Burst:
    """Bursts of a call that makes ``steps`` steps.

    Each begins with a call that is not timed, because another kind of step had the caches and the free memory before.
    """

    def burst(length: int) -> float:
        calls = max(1, round(length / steps))
        call()
        return seconds_of(call, calls, cuda) / (calls * steps)

    return burst


def seconds_of(call: Step, times: int, cuda: bool) -> float:
    """The seconds that ``times`` calls take, with one synchronisation at their end."""
    if not cuda:
        began = time.perf_counter()
        for _ in range(times):
            call()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def in_turns(
    bursts: Mapping[str, Burst], rounds: int, cuda: bool, say: Callable[[int, str], None] = lambda done, note: None
) -> tuple[int, dict[str, list[float]]]:
    """Time all kinds of steps. Nothing else should run on the machine meanwhile.

    Args:
        bursts: by name. In each round every one runs once; the one that begins changes from round to round.
        rounds: how many.
        cuda: whether the steps run on a GPU.
        say: called with the rounds done since the last call, and a note.

    Returns:
        The steps of a burst, and the seconds per step, by name, in every round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in bursts}
    if not bursts:
        say(rounds, "nothing to time")
        return 1, seconds
    length = burst_length(next(iter(bursts.values())), cuda)
    for burst in bursts.values():
        burst(1)
    for i in range(rounds):
        for name in rotated(list(bursts), i):
            seconds[name].append(bursts[name](length))
        say(1, f"round {i + 1} of {rounds}")
    return length, seconds


def burst_length(burst: Burst, cuda: bool) -> int:
    """How many steps make a burst; at least 2 on a GPU, where they can be in flight together."""
    seconds = min(burst(1) for _ in range(2))
    return max(2 if cuda else 1, math.ceil(SHORTEST["cuda" if cuda else "cpu"] / max(seconds, 1e-6)))


def rotated(names: Sequence[str], i: int) -> list[str]:
    """The order of round i."""
    start = i % len(names)
    return [*names[start:], *names[:start]]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def captured(step: Step, clear_gradients: Step, pool: Any) -> Step:
    """A step recorded as one CUDA graph; calling the result replays it.

    All graphs of one memory pool must run one after the other: they overwrite each other's results.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # torch wants a few steps on a side stream before a capture
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    clear_gradients()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    clear_gradients()
    return graph.replay


@contextmanager
def fast_device(cuda: bool) -> Iterator[None]:
    """What training on a GPU is usually set to: TF32 for float32 products, and cuDNN's search for the fastest
    convolutions."""
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
