"""Claims of the experiment smoke. (The paper prints pictures of this experiment, but no numbers.)"""

from __future__ import annotations

from racecar_lab.experiment import Claim

SEEDS = 5
"""Number of seeds that a claim needs at least to be judged."""
ERROR_MARGIN = 0.05
"""Largest relative difference in error between two generators that count as equally good; for energy spectra it is
twice this."""
SSIM_MARGIN = 0.01
"""Largest difference in SSIM between two generators that count as equally good."""


def claims() -> tuple[Claim, ...]:
    """Claims that the reverse pass recovers the generator's input, and that super-resolution does not suffer."""
    result = []
    for ours in ("RR", "lRR"):
        for metric, meaning in (("psnr", "PSNR"), ("ssim_scaled", "SSIM, brightness and contrast apart")):
            for than in ("Std", "Ort"):
                text = f"{ours}'s reverse pass recovers the low resolution better than {than}'s: {meaning}"
                result.append(Claim(text, metric, "A", ours, than, minimum_seeds=SEEDS))
        result.append(
            Claim(
                f"{ours} enlarges with less error than Std", "test_l2", "A", ours, "Std", higher=False,
                minimum_seeds=SEEDS,
            )
        )  # fmt: skip
        for metric, margin, relative, meaning in (
            ("test_l2", ERROR_MARGIN, True, "L2"),
            ("test_ssim", SSIM_MARGIN, False, "SSIM"),
            ("test_spectrum", 2 * ERROR_MARGIN, True, "energy spectrum"),
        ):
            text = f"{ours} enlarges as well as Std: {meaning}"
            result.append(
                Claim(
                    text, metric, "A", ours, "Std", higher=metric == "test_ssim", minimum_seeds=SEEDS, margin=margin,
                    relative=relative,
                )
            )  # fmt: skip
    return tuple(result)
