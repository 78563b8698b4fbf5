"""What smoke claims. (Of this experiment the paper prints pictures, and no numbers.)"""

from __future__ import annotations

from racecar_lab.experiment import Claim

SEEDS = 5
"""That a claim needs."""
WORSE = 0.05
"""Share by which the error of two generators may differ that are called as good, and their spectra's distance."""
SIMILARITY = 0.01
"""By how much SSIM may."""


def claims() -> tuple[Claim, ...]:
    """The input is recovered, and super-resolution does not suffer."""
    found = []
    for ours in ("RR", "lRR"):
        for metric, what in (("psnr", "PSNR"), ("ssim_scaled", "SSIM, brightness and contrast apart")):
            for than in ("Std", "Ort"):
                text = f"{ours}'s reverse pass recovers the low resolution better than {than}'s: {what}"
                found.append(Claim(text, metric, "A", ours, than, minimum_seeds=SEEDS))
        found.append(
            Claim(
                f"{ours} enlarges with less error than Std", "test_l2", "A", ours, "Std", higher=False,
                minimum_seeds=SEEDS,
            )
        )  # fmt: skip
        for metric, margin, relative, what in (
            ("test_l2", WORSE, True, "L2"),
            ("test_ssim", SIMILARITY, False, "SSIM"),
            ("test_spectrum", 2 * WORSE, True, "energy spectrum"),
        ):
            text = f"{ours} enlarges as well as Std: {what}"
            lower = metric != "test_ssim"
            found.append(
                Claim(
                    text, metric, "A", ours, "Std", higher=not lower, minimum_seeds=SEEDS, margin=margin,
                    relative=relative,
                )
            )  # fmt: skip
    return tuple(found)
