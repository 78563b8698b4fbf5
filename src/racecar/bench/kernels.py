"""The kernels of a step: how many it launches, and how much of their time goes into products (``--profile``)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.autograd import DeviceType

from racecar.bench.timing import Step

PRODUCT = re.compile(r"gemm|gemv|nvjet|cutlass|xmma|conv|fprop|dgrad|wgrad|flash|fmha|attention|matmul|mm$", re.I)
"""Names of kernels, and of torch's operators, that multiply matrices or convolve."""
NUMBER = re.compile(r"<.*|_\d+$", re.S)
"""Endings that are cut off kernel names, so that one kind has one name: template arguments, numbers."""
LARGEST = 40
FOOT = "Kernels of one step that is not captured, and their time on the device, by the profiler, which slows it down."
HEAD = ("net", "step", "kernels", "ms", "products, ms", "others, ms", "more: kernels", "products, ms", "others, ms")


def profile(step: Step, cuda: bool) -> dict[str, Any]:
    """Number of kernels (on a CPU: operators) of a step that is not captured, their milliseconds, those of products."""
    activity = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        step()
        if cuda:
            torch.cuda.synchronize()
    events = profiler.events() or ()
    if not cuda:  # an operator may call others: its own time alone
        return summary((one.name, one.self_cpu_time_total) for one in events if one.name.startswith("aten::"))
    kernels = (one for one in events if one.device_type == DeviceType.CUDA and not one.is_user_annotation)
    # A compiler puts the names of its graphs beside the kernels.
    return summary((one.name, one.time_range.elapsed_us()) for one in kernels if not one.name.startswith("##"))


def summary(kernels: Iterable[tuple[str, float]]) -> dict[str, Any]:
    """Sums over kernels given as (name, microseconds), and the kinds that take longest: name, number, milliseconds."""
    kernels = list(kernels)
    products = sum(time for name, time in kernels if PRODUCT.search(name))
    whole = sum(time for _, time in kernels)
    kinds: dict[str, list[float]] = defaultdict(list)
    for name, time in kernels:
        kinds[NUMBER.sub("", name)].append(time)
    largest = sorted(kinds.items(), key=lambda kind: -sum(kind[1]))[:LARGEST]
    return {
        "kernels": len(kernels),
        "kernel_ms": whole / 1000,
        "product_ms": products / 1000,
        "largest": [[name, len(times), round(sum(times) / 1000, 4)] for name, times in largest],
    }


def rows(record: Mapping[str, Any]) -> list[list[str]]:
    """A row for each profiled step, with its differences from the plain step."""
    table = []
    for model in record["models"]:
        steps = [step for step in model.get("steps", []) if step.get("kernels") and step["every"] == 1]
        plain = next((_numbers(step) for step in steps if step["step"] == "plain"), None)
        for i, step in enumerate(steps):
            numbers = _numbers(step)
            count, *times = [a - b for a, b in zip(numbers, plain, strict=True)] if plain else numbers
            more = [f"{count:+d}", f"{times[1]:+.2f}", f"{times[2]:+.2f}"] if plain else ["–"] * 3
            cells = [str(numbers[0]), *(f"{time:.2f}" for time in numbers[1:])]
            table.append([model["model"] if i == 0 else "", step["step"], *cells, *more])
    return table


def _numbers(step: Mapping[str, Any]) -> tuple[int, float, float, float]:
    """The number of kernels, and the milliseconds of all of them, of products and of the others."""
    whole, products = step["kernel_ms"], step["product_ms"]
    return step["kernels"], whole, products, whole - products
