"""What smoke-autoencoder claims, and the figures that the paper prints."""

from __future__ import annotations

from racecar_lab.experiment import Claim
from racecar_lab.experiments.smoke_autoencoder.stages import TASKS, stage_name

SEEDS = 5
"""That a claim needs."""
PAPER_B1, PAPER_B2 = 0.6888, 0.133
"""By how much the paper's RR has less L2 than its Std."""
PAPER_BOTH = 1 - 1.56 / 1.82
"""What it has less with the decoder alone than with both halves, on real smoke."""


def _less(text: str, stage: str, than: str, than_stage: str, paper: float | None = None) -> Claim:
    return Claim(
        text, "test_l2", stage, "RR", than, higher=False, minimum_seeds=SEEDS, relative=True, than_stage=than_stage,
        paper=paper,
    )  # fmt: skip


def claims() -> tuple[Claim, ...]:
    """B1: both halves; B2 and B3: the decoder, as the paper has it. Beside them the controls that it lacks."""
    both, half = stage_name("B1", "both"), stage_name("B1", "decoder")
    found = [
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
        what, first = TASKS[task], task == "B2"
        found += [
            _less(f"RR's decoder has less error than Std's: {what}", half, "Std", half, PAPER_B2 if first else None),
            _less(f"RR's decoder has less error than Std from scratch: {what}", half, "Std", task),
            _less(
                f"RR's decoder alone has less error than both its halves: {what}", half, "RR", both,
                PAPER_BOTH if first else None,
            ),
        ]  # fmt: skip
    return tuple(found)
