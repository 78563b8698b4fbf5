"""How each variant reads the codes of pictures: backwards through the generator, by a network of its own, or by
gradient steps on the generator's input."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from racecar import Racecar, invert
from racecar_lab.experiments.disentangle.codes import Codes, from_inputs, from_readings, mean_inputs
from racecar_lab.experiments.disentangle.config import DisentangleConfig

BATCH = 1000
"""Number of pictures that are read at once."""
Reader = Callable[[Tensor], Codes]
"""Pictures (N, 1, 28, 28) → their codes."""


def reader(config: DisentangleConfig, networks: nn.ModuleDict) -> Reader:
    """How the codes of pictures are read: by the network that was trained for it, or, if there is none, by the
    generator run backwards."""
    if "encoder" in networks:
        return in_batches(lambda x: from_readings(networks["encoder"](x)))
    if "head" in networks:
        return in_batches(lambda x: from_readings(networks["head"](networks["discriminator"].features(x))))  # type: ignore[operator]
    if "mirror" in networks:
        return in_batches(lambda x: from_inputs(networks["mirror"](x), config.code))
    backwards = run_backwards(networks["generator"], config.code)
    return in_batches(lambda x: from_inputs(backwards(x), config.code))


def run_backwards(generator: nn.Module, code: str) -> Callable[[Tensor], Tensor]:
    """A generator run backwards: pictures (N, 1, 28, 28) → inputs. Batch norm uses the statistics of the pictures that
    are read at once, as in training. The generator is not changed."""
    rr = Racecar(copy.deepcopy(generator).train(), _inputs(generator, 2, code), mode="full")

    def reverse(x: Tensor) -> Tensor:
        inputs = rr.reverse(x)
        assert isinstance(inputs, Tensor)  # the generator has a single input
        return inputs

    return reverse


def inverted(config: DisentangleConfig, generator: nn.Module) -> Reader:
    """Codes are read by Adam's steps on the generator's input, from the mean of all inputs on, so that the generated
    picture comes near the given one."""
    rr = Racecar(copy.deepcopy(generator), _inputs(generator, 2, config.code), mode="full")

    def invert_part(x: Tensor) -> Codes:
        start = _inputs(generator, len(x), config.code)
        return from_inputs(invert(rr, x, config.inversion_steps, start=start).x, config.code)

    return in_batches(invert_part)


def in_batches(read: Reader) -> Reader:
    """A reader of any number of pictures, in batches."""

    @torch.no_grad()
    def read_all(x: Tensor) -> Codes:
        parts = [read(part) for part in x.split(BATCH)]
        return Codes(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    return read_all


def own_readers(networks: nn.ModuleDict) -> list[nn.Module]:
    """The networks beside the generator that the reader needs."""
    if "head" in networks:
        return [networks["head"], networks["discriminator"].features]  # type: ignore[list-item]
    return [networks[name] for name in ("encoder", "mirror") if name in networks]


def _inputs(generator: nn.Module, count: int, code: str) -> Tensor:
    return mean_inputs(count, code).to(next(generator.parameters()).device)
