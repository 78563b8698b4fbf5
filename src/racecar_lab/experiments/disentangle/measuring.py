"""Measures of disentangle: codes of generated and of real digits, the pictures themselves, and examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from racecar_lab.experiment import Measured, Split, Trained
from racecar_lab.experiments.disentangle.codes import (
    CLASSES,
    DRAWS,
    NOISE,
    Codes,
    draw,
    to_inputs,
)
from racecar_lab.experiments.disentangle.config import DisentangleConfig
from racecar_lab.experiments.disentangle.judge import digits_shown, refuse_bad, trained_judge
from racecar_lab.experiments.disentangle.readers import BATCH, Reader, inverted, own_readers, reader
from racecar_lab.measures.agreement import best_match_accuracy, normalised_information
from racecar_lab.measures.frechet import frechet_distance
from racecar_lab.measures.rank_correlation import matched, rank_correlations
from racecar_lab.measures.strokes import slant, stroke_width
from racecar_lab.training import rng

ROWS, COLUMNS = 5, 10
"""Rows and columns of the pictures in which a code varies."""


class Generated(NamedTuple):
    """Generated pictures and the codes that they were made with."""

    codes: Codes
    x: Tensor
    """Pictures (N, 1, 28, 28)."""


def measure(config: DisentangleConfig, trained: Trained) -> Measured:
    """All measures of a stage. A search measures only generated pictures, without the labels of digits. Stage E, which
    leaves the generator as it is, measures only how its encoder reads."""
    networks, (kind, split) = trained.model, trained.task.evaluated
    assert isinstance(networks, nn.ModuleDict)
    generator, read = networks["generator"], reader(config, networks)
    generated = sample(generator, config, trained.seed)
    metrics = reading(read(generated.x), generated.codes)
    if kind == "test":
        metrics |= agreement("real", read(split.x).c1, split.y)
    metrics |= {"reader_parameters": float(parameters(own_readers(networks)))}
    if "discriminator" not in networks:
        return Measured(metrics)
    metrics |= pictures(generated, split, config, trained)
    metrics["parameters"] = float(parameters([networks]))
    if kind == "valid":
        return Measured(metrics)
    by_steps, count = inverted(config, generator), config.inverted
    metrics |= agreement("inverted_real", by_steps(split.x[:count]).c1, split.y[:count])
    metrics |= agreement("inverted_generated", by_steps(generated.x[:count]).c1, generated.codes.c1[:count])
    return Measured(metrics, arrays=examples(generator, read, split, config, trained.seed))


@torch.no_grad()
def sample(generator: nn.Module, config: DisentangleConfig, seed: int) -> Generated:
    """Pictures of random codes and noise, the same for every generator with this seed."""
    normal = torch.randn(config.samples, DRAWS, generator=rng.generator("disentangle samples", seed))
    codes, noise = draw(normal.to(next(generator.parameters()).device))
    return Generated(codes, generate(generator, to_inputs(codes, noise, config.code)))


@torch.no_grad()
def generate(generator: nn.Module, inputs: Tensor) -> Tensor:
    """The pictures of inputs, computed in batches."""
    return torch.cat([generator(part) for part in inputs.split(BATCH)])


def reading(read_codes: Codes, codes: Codes) -> dict[str, float]:
    """How well the codes of generated pictures are found again; "codes" is the mean over c1, c2 and c3, by which λ is
    chosen."""
    metrics = agreement("generated", read_codes.c1, codes.c1)
    c2, c3 = rank_correlations(read_codes.c23, codes.c23).diagonal().tolist()
    return {**metrics, "generated_c2": c2, "generated_c3": c3, "codes": (metrics["generated_accuracy"] + c2 + c3) / 3}


def agreement(name: str, c1: Tensor, classes: Tensor) -> dict[str, float]:
    """Best-match accuracy and normalised mutual information of c1 and classes, (N,) each."""
    return {
        f"{name}_accuracy": best_match_accuracy(c1, classes, CLASSES),
        f"{name}_information": normalised_information(c1, classes, CLASSES),
    }


def pictures(generated: Generated, split: Split, config: DisentangleConfig, trained: Trained) -> dict[str, float]:
    """Metrics of the generated pictures: the digits that they show, by the judge, and their style, by their ink."""
    judge = trained_judge(trained.folder, config.digits, config.judge_epochs, str(trained.device))
    refuse_bad(judge, config.judge_accuracy)
    (features, classes), (real_features, _) = judge.look(generated.x), judge.look(split.x)
    return {
        "frechet": frechet_distance(features, real_features),
        "digits": float(digits_shown(classes)),
        "judge_accuracy": judge.accuracy,
        **agreement("shown", generated.codes.c1, classes),
        **style(generated),
    }


def style(generated: Generated) -> dict[str, float]:
    """|Spearman's ρ| of slant and of stroke width with the code, c2 or c3, that each is matched with, one-to-one."""
    attributes = torch.stack((slant(generated.x), stroke_width(generated.x)), 1)
    correlations = rank_correlations(attributes, generated.codes.c23)
    best = matched(correlations)
    return {name: float(correlations[i, best[i]]) for i, name in enumerate(("slant", "stroke_width"))}


def parameters(networks: Iterable[nn.Module]) -> int:
    """The number of weights of networks."""
    return sum(parameter.numel() for network in networks for parameter in network.parameters())


def examples(
    generator: nn.Module, read: Reader, split: Split, config: DisentangleConfig, seed: int
) -> dict[str, Tensor]:
    """Pictures for figures, uint8: "varied" (3, 5, 10, 28, 28), rows in which c1, c2 and c3 vary; "real" (10, 28, 28),
    a test picture of each digit; "read" (10, 28, 28), the pictures generated from the codes that are read from those,
    without noise; and "read_c1" (10,)."""
    device = next(generator.parameters()).device
    noise = (2 * torch.rand(ROWS, NOISE, generator=rng.generator("disentangle rows", seed)) - 1).to(device)
    varied = [
        generate(generator, to_inputs(varying(which, device), noise.repeat_interleave(COLUMNS, 0), config.code))
        for which in range(3)
    ]
    read_codes = read(split.x)  # of all, because batch norm needs a whole batch
    labels = split.y.tolist()
    first = torch.tensor([labels.index(digit) for digit in range(CLASSES) if digit in labels], device=device)
    codes = Codes(read_codes.c1[first], read_codes.c23[first].clamp(-1, 1))
    again = generate(generator, to_inputs(codes, torch.zeros(len(first), NOISE, device=device), config.code))
    return {
        "varied": as_bytes(torch.stack(varied)).view(3, ROWS, COLUMNS, *split.x.shape[2:]),
        "real": as_bytes(split.x[first, 0]),
        "read": as_bytes(again[:, 0]),
        "read_c1": codes.c1.cpu(),
    }


def varying(which: int, device: torch.device) -> Codes:
    """Codes of rows of pictures in which c1 (``which`` 0), c2 (1) or c3 (2) varies, row by row. Where it stays, c1 is
    another one in every row; c2 and c3 are 0."""
    rows, columns = torch.arange(ROWS), torch.arange(COLUMNS)
    c1 = columns.repeat(ROWS) if which == 0 else (2 * rows).repeat_interleave(COLUMNS)
    c23 = torch.zeros(ROWS * COLUMNS, 2)
    if which:
        c23[:, which - 1] = (2 * columns / (COLUMNS - 1) - 1).repeat(ROWS)
    return Codes(c1.to(device), c23.to(device))


def as_bytes(x: Tensor) -> Tensor:
    """Pixels in [0, 1] as uint8, on the CPU."""
    return (255 * x.float().clamp(0, 1)).round().byte().cpu()
