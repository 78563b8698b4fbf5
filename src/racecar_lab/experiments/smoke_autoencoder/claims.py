"""Claims of smoke-autoencoder, and the numbers that the paper prints for them."""

from __future__ import annotations

from racecar_lab.experiment import Claim
from racecar_lab.experiments.smoke_autoencoder.stages import TASKS, stage_name

SEEDS = 5
"""Number of seeds that a claim needs at least to be judged."""
PAPER_B1, PAPER_B2 = 0.6888, 0.133
"""Shares by which the L2 error of the paper's RR is lower than that of its Std: on simulated and on real smoke."""
PAPER_BOTH = 1 - 1.56 / 1.82
"""Share by which the L2 error of the paper's RR on real smoke is lower if the decoder alone takes weights from the GAN
than if both halves do."""


def _less(text: str, stage: str, than: str, than_stage: str, paper: float | None = None) -> Claim:
    """Make the claim that RR in ``stage`` has a lower L2 error than the variant ``than`` in ``than_stage``. ``paper``
    is the paper's gain, as a share; None: it has none."""
    return Claim(
        text, "test_l2", stage, "RR", than, higher=False, minimum_seeds=SEEDS, relative=True, than_stage=than_stage,
        paper=paper,
    )  # fmt: skip


def claims() -> tuple[Claim, ...]:
    """All claims: about RR with both halves (B1) or the decoder (B2, B3) from its GAN, as in the paper, and about
    controls that the paper lacks."""
    both, half = stage_name("B1", "both"), stage_name("B1", "decoder")
    result = [
        _less("Simulations: RR with both halves has less error than Std with its decoder", both, "Std", half, PAPER_B1),
        _less("Simulations: RR with both halves has less error than Std with both halves", both, "Std", both),
        _less("Simulations: RR with both halves has less error than Std from scratch", both, "Std", "B1"),
        _less("Simulations: RR with both halves has less error than Ort with both halves", both, "Ort", both),
        Claim(
            "Simulations: RR with both halves learns sooner than Std with both halves", "learning", both, "RR", "Std",
            higher=False, minimum_seeds=SEEDS,
        ),
    ]  # fmt: skip
    for task in ("B2", "B3"):
        half, both = stage_name(task, "decoder"), stage_name(task, "both")
        data, in_paper = TASKS[task], task == "B2"
        result += [
            _less(f"RR's decoder has less error than Std's: {data}", half, "Std", half, PAPER_B2 if in_paper else None),
            _less(f"RR's decoder has less error than Std from scratch: {data}", half, "Std", task),
            _less(
                f"RR's decoder alone has less error than both its halves: {data}", half, "RR", both,
                PAPER_BOTH if in_paper else None,
            ),
        ]  # fmt: skip
    return tuple(result)
