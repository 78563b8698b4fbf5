"""Claims of few-labels: those of the first design, whose records are published, and those of today's design."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from racecar_lab.experiment import Claim
from racecar_lab.experiments.few_labels.config import FewLabelsConfig
from racecar_lab.training.loss_config import FIRST_LOSS, LossConfig

TASKS = {
    "digits": "MNIST, digits 0–4 → 5–9",
    "blur": "MNIST → n-MNIST, other pictures with motion blur",
    "cifar": "CIFAR-10, the first five classes → the other five",
}
MARGIN = 0.02
"""Largest difference between two accuracies that count as equally good."""
SEEDS = 5
"""Smallest number of seeds with which a claim is judged. Runs that map many settings have fewer, so that no claim is
judged on them."""
USUAL = {
    name: getattr(FewLabelsConfig, name)
    for name in ["task", "norm", "images", "epochs", "depth", "layers", "decay", "augment", "fraction", "longer"]
}
"""Field of the configuration → the value for which the first design has claims, its default. Runs with other values are
shown in the heat table, without claims."""
JUDGED = {
    name: frozenset({first, getattr(LossConfig, name)})
    for name, first in FIRST_LOSS.items()
    if name in ("scale", "gradient")
}
"""Field of the reverse loss (scale, gradient) → its values for which the first design's claims are judged, each by
itself: every value that has been the default."""
FIRST = {"tune_lrs": ()}
"""Setting by which runs of the first design are known, in which fine-tuning had one learning rate."""
TODAY = {"tune_lrs": FewLabelsConfig.tune_lrs}
"""Setting by which runs of today's design are known, in which fine-tuning chooses its learning rate."""
VARYING = ("task", "depth")
"""Fields of the configuration that today's claims leave open: for each of their values the claims are judged by
themselves."""


def claims() -> tuple[Claim, ...]:
    """All claims of few-labels, of both designs."""
    return (*_first(), *(claim for name in ("RR", "lRR") for claim in _today(name)))


def _claim(
    text: str,
    metric: str,
    than: str = "Std",
    margin: float | None = None,
    against: Mapping[str, Any] | None = None,
    **where: Any,
) -> Claim:
    """Make a claim of the first design: RR's ``metric`` is higher than that of the variant ``than``, or, with a
    ``margin``, as good within it. ``where`` changes the settings of both, ``against`` those of ``than`` alone."""
    where = {**USUAL, **JUDGED, **where}
    return Claim(
        text, metric, "A", "RR", than, where=where, minimum_seeds=SEEDS, margin=margin, against=against or {},
        design=FIRST,
    )  # fmt: skip


def _first() -> tuple[Claim, ...]:
    """All claims of the first design, in which fine-tuning had one learning rate."""
    return (
        *(
            _claim(f"Without norm RR beats Std at {n} labels: probe, {task}", f"probe_{n}", task=task)
            for task in TASKS
            for n in (2, 10)
        ),
        *(_claim(f"Without norm RR beats {than} at 2 labels: probe", "probe_2", than) for than in ("Ort", "Pre")),
        _claim("Without norm RR beats Std at 2 labels: fine-tuned", "tune_2"),
        _claim(
            "Without norm RR beats Std trained as many seconds at 2 labels: probe", "probe_2", against={"longer": True}
        ),
        _claim(
            "Without norm a slice is as good as the exact reverse pass at 2 labels: probe", "probe_2", "RR", MARGIN,
            {"fraction": 1.0},
        ),
        *(
            _claim(f"With {norm} norm RR is as good as Std at 2 labels: probe", "probe_2", margin=MARGIN, norm=norm)
            for norm in ("batch", "group")
        ),
    )  # fmt: skip


def _today(name: str) -> list[Claim]:
    """Claims of today's design about the variant ``name``, RR or lRR: without norm it beats others, and, the last one,
    with batch norm it is as good as Std."""
    where = {field: value for field, value in USUAL.items() if field not in VARYING}
    comparisons: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("Std at 2 labels: probe", "probe_2", "Std", {}),
        ("Std at 50 labels: probe", "probe_50", "Std", {}),
        ("Std at 2 labels: fine-tuned", "tune_2", "Std", {}),
        ("Std on the source task: accuracy", "source_accuracy", "Std", {}),
        ("Std on the source task: likelihood", "source_nll", "Std", {}),
        ("Ort at 2 labels: probe", "probe_2", "Ort", {}),
        ("OrtB at 2 labels: probe", "probe_2", "OrtB", {}),
        ("Pre at 2 labels: probe", "probe_2", "Pre", {}),
        ("Std trained as many seconds at 2 labels: probe", "probe_2", "Std", {"longer": True}),
        ("Std with batch norm at 2 labels: probe", "probe_2", "Std", {"norm": "batch"}),
    )
    claims = [
        Claim(
            f"Without norm {name} beats {text}", metric, "A", name, than, higher=metric != "source_nll", where=where,
            minimum_seeds=SEEDS, against=against, design=TODAY,
        )
        for text, metric, than, against in comparisons
    ]  # fmt: skip
    text = f"With batch norm {name} is as good as Std at 2 labels: probe"
    with_norm = {**where, "norm": "batch"}
    claims.append(
        Claim(text, "probe_2", "A", name, "Std", where=with_norm, minimum_seeds=SEEDS, margin=MARGIN, design=TODAY)
    )
    return claims
