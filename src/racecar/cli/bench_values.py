"""Parse and check the options of ``racecar bench``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from racecar.bench.kinds import Kind
    from racecar.bench.workload import StepOptions

MOST = 1_000_000
"""The largest number that an option takes; a larger one is taken for a typing error."""


def kinds_of(fractions: str, every: str, gradients: str, modes: str) -> list[Kind]:
    """The kinds of steps that the options ask for."""
    from racecar.bench.kinds import reverse_kinds
    from racecar.plan.routes import MODES
    from racecar.reverse.terms import GRADIENTS

    shares, everys = fractions_of(fractions), numbers_of(every, "--every")
    return reverse_kinds(
        shares, everys, words_of(gradients, "--gradients", GRADIENTS), words_of(modes, "--modes", MODES)
    )


def numbers_of(text: str, option: str) -> list[int]:
    """Whole numbers from a text such as "1,4,16"; raises if one is below 1, too large or given twice."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not 1 <= min(numbers) <= max(numbers) <= MOST or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{option} {text!r:.80}: whole numbers of at least 1 and at most {MOST:,}, each once, as 1,4,16"
        )
    return numbers


def fractions_of(text: str) -> list[float]:
    """Fractions of the batch from a text such as "1,1/8,1/16"; raises unless they are different and in (0, 1]."""
    try:
        fractions = [float(Fraction(part.strip())) for part in text.split(",")]
    except (ValueError, ZeroDivisionError, OverflowError):
        fractions = []
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions) or len(set(fractions)) < len(fractions):
        raise ValueError(f"--fractions {text!r}: give different numbers above 0 and up to 1, as 1,1/8,1/16")
    return fractions


def words_of(text: str, option: str, known: Sequence[str]) -> list[str]:
    """Different words, each one of ``known``, from a text such as "both,reverse"."""
    words = [part.strip() for part in text.split(",")]
    if not set(words) <= set(known) or len(set(words)) < len(words):
        raise ValueError(f"{option} {text!r}: give different ones of {', '.join(known)}")
    return words


def parse_step_options(
    device: str,
    precision: str,
    compile_steps: bool | None,
    graphs: bool | None,
    combine: bool,
    profile: bool,
) -> StepOptions:
    """How the timed steps are executed; options left out get the device's default."""
    import torch

    from racecar.bench.workload import StepOptions

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}: give cpu, cuda or cuda:1") from None
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"bench knows cpu and cuda, not {device!r}")
    cuda = kind == "cuda"
    if cuda and not torch.cuda.is_available():
        raise ValueError("--device cuda: there is no CUDA device here")
    if precision not in ("", "bf16", "float32"):
        raise ValueError(f"--precision must be bf16 or float32, not {precision!r}")
    if graphs and not cuda:
        raise ValueError("--graphs needs --device cuda")
    compiled = cuda if compile_steps is None else compile_steps
    if combine and not compiled:
        raise ValueError("--combine is an option of the compiler: give --compile as well")
    return StepOptions(
        device=device,
        half=precision == "bf16" or (not precision and cuda),
        compile=compiled,
        combine=combine,
        graphs=cuda and compiled if graphs is None else graphs,
        profile=profile,
    )
