"""The trained generators of digits as models by themselves, which ``racecar inspect`` and anyone else can load:

    racecar inspect racecar_lab.experiments.disentangle.generators:one_hot_norm \\
        --weights RR1-one-hot-norm.safetensors --data inputs-one-hot.safetensors --input 64,74
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from racecar.support.extras import need
from racecar.support.files import write_atomically
from racecar_lab.experiments.disentangle.codes import DRAWS, draw, inputs_count, to_inputs
from racecar_lab.networks.infogan import generator
from racecar_lab.running.results import Store
from racecar_lab.training import rng

INPUTS = 256
"""Number of inputs to look at a generator with."""
PREFIX = "generator."
"""Prefix of the generator's weights among those of a stage."""


def one_hot() -> nn.Sequential:
    """The generator with a one-hot c1: (N, 74) → (N, 1, 28, 28)."""
    return generator(inputs_count("one-hot"), norm=False)


def one_hot_norm() -> nn.Sequential:
    """The same with batch norm."""
    return generator(inputs_count("one-hot"), norm=True)


def number() -> nn.Sequential:
    """The generator with c1 as a number: (N, 65) → (N, 1, 28, 28)."""
    return generator(inputs_count("number"), norm=False)


def number_norm() -> nn.Sequential:
    """The same with batch norm."""
    return generator(inputs_count("number"), norm=True)


def write_generators(results: Path, folder: Path, seed: int = 0) -> list[Path]:
    """Write the generators of a results folder into files of their own, VARIANT-CODE[-norm].safetensors, of the runs
    with this seed. Each file names the command that made it. Beside them are inputs to look at them with, x (N, …) and
    their c1 as y, inputs-CODE.safetensors.

    Args:
        results: a folder that ``racecar run disentangle --out`` wrote.
        folder: where the files are written.
    """
    store = Store(results)
    contents: dict[str, tuple[dict[str, Tensor], dict[str, Any] | None]] = {}
    for run in store.runs():
        if run.stage == "A" and run.finished and run.seed == seed:
            code, norm = run.config["code"], "-norm" if run.config["norm"] else ""
            weights = {name.removeprefix(PREFIX): tensor for name, tensor in store.weights(run.id).items()
                       if name.startswith(PREFIX)}  # fmt: skip
            about = {"command": run.record["made"]["command"], "id": run.id, "seed": str(seed)}
            contents[f"{run.variant}-{code}{norm}.safetensors"] = weights, about
            codes, noise = draw(torch.randn(INPUTS, DRAWS, generator=rng.generator("disentangle inputs")))
            contents[f"inputs-{code}.safetensors"] = {"x": to_inputs(codes, noise, code), "y": codes.c1}, None
    for name, (tensors, metadata) in contents.items():
        with write_atomically(folder / name) as file:
            file.write(need("safetensors.torch", "lab").save(tensors, metadata))
    return [folder / name for name in contents]
