"""What few-labels claims: of its first design, whose records are published, and of today's."""

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
"""By how much two accuracies may differ that are called as good."""
SEEDS = 5
"""That a claim needs: a map has fewer, and claims nothing."""
USUAL = {
    name: getattr(FewLabelsConfig, name)
    for name in ["task", "norm", "images", "epochs", "depth", "layers", "decay", "augment", "fraction", "longer"]
}
"""What the first claims are about; other settings are shown on the map, and nothing is claimed of them."""
JUDGED = {
    name: frozenset({first, getattr(LossConfig, name)})
    for name, first in FIRST_LOSS.items()
    if name in ("scale", "gradient")
}
"""So is every loss that has been the usual one, each by itself."""
FIRST = {"tune_lrs": ()}
"""The first design: fine-tuning had one learning rate."""
TODAY = {"tune_lrs": FewLabelsConfig.tune_lrs}
"""Every task, depth, start and loss is a family of claims by itself."""
VARYING = ("task", "depth")


def claims() -> tuple[Claim, ...]:
    return (*_first(), *(claim for name in ("RR", "lRR") for claim in _today(name)))


def _claim(
    text: str,
    metric: str,
    than: str = "Std",
    margin: float | None = None,
    against: Mapping[str, Any] | None = None,
    **where: Any,
) -> Claim:
    where = {**USUAL, **JUDGED, **where}
    return Claim(
        text, metric, "A", "RR", than, where=where, minimum_seeds=SEEDS, margin=margin, against=against or {},
        design=FIRST,
    )  # fmt: skip


def _first() -> tuple[Claim, ...]:
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
    """Of one variant, ``name``, without norm, but for the last."""
    where = {field: value for field, value in USUAL.items() if field not in VARYING}
    sides: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
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
    found = [
        Claim(
            f"Without norm {name} beats {text}", metric, "A", name, than, higher=metric != "source_nll", where=where,
            minimum_seeds=SEEDS, against=against, design=TODAY,
        )
        for text, metric, than, against in sides
    ]  # fmt: skip
    text = f"With batch norm {name} is as good as Std at 2 labels: probe"
    with_norm = {**where, "norm": "batch"}
    found.append(
        Claim(text, "probe_2", "A", name, "Std", where=with_norm, minimum_seeds=SEEDS, margin=MARGIN, design=TODAY)
    )
    return found
