"""Claims of disentangle, written before its first run. (The paper prints pictures of this experiment, but no numbers.)

Std has no reason to use c1, so that beating Std says little: the claims are against InfoGAN, which reads codes with a
network of its own, and against RR1's own loss with free weights on the way back.
"""

from __future__ import annotations

from racecar_lab.experiment import Claim

SEEDS = 5
"""Number of seeds that a claim needs at least to be judged."""
MARGIN = 0.2
"""Largest relative difference of two Fréchet distances that count as equally good."""
RIVALS = {
    ("InfoGAN", "A"): "InfoGAN",
    ("Free", "A"): "free weights on the way back",
    ("Std", "E"): "an encoder trained afterwards on Std's pictures",
}
"""Variant and stage of those that RR1 is compared with → their description."""
METRICS = {
    "real_accuracy": "c1 of real digits, best-match accuracy",
    "generated_accuracy": "c1 of generated digits, best-match accuracy",
}


def claims() -> tuple[Claim, ...]:
    """Claims that RR1 reads codes better, and that its pictures are as good as Std's."""
    better = [
        Claim(
            f"RR1 run backwards reads codes better than {description}: {meaning}",
            metric, "A", "RR1", variant, minimum_seeds=SEEDS, than_stage="" if stage == "A" else stage,
        )
        for (variant, stage), description in RIVALS.items()
        for metric, meaning in METRICS.items()
    ]  # fmt: skip
    as_good = Claim(
        "RR1's pictures are as good as Std's: Fréchet distance", "frechet", "A", "RR1", "Std", higher=False,
        minimum_seeds=SEEDS, margin=MARGIN, relative=True,
    )  # fmt: skip
    return (*better, as_good)
