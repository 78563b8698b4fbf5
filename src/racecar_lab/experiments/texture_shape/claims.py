"""Claims of texture-shape and the paper's numbers. The claims are few, because five folds decide only few."""

from __future__ import annotations

from dataclasses import replace

from racecar_lab.datasets.texture_shape import FOLDS
from racecar_lab.experiment import Claim, Paper

HONEST = {"split": "shape", "longer": False, "reduced": False}
"""Settings of the claims, which are judged for every recipe and loss by itself."""
STAGE = "AA"
"""The stage that the paper measures: the fine-tuned net."""
TIME = 0.4186
"""Additional time of an epoch of RR in the paper, as a share of Std's."""
WEIGHTS = 0.6794
"""Weights of the paper's reduced net, as a share of the full net's."""


def claims() -> tuple[Claim, ...]:
    """All claims of the experiment."""
    ours = Claim("", "test_accuracy", STAGE, "RR", "Std", where=HONEST, minimum_seeds=FOLDS)
    edges = replace(ours, metric="edges_accuracy", relative=True)
    return (
        replace(ours, text="RR beats Std on stylised pictures of new shapes"),
        replace(ours, text="RR beats Ort on stylised pictures of new shapes", than="Ort"),
        replace(ours, text="RR beats WD on stylised pictures of new shapes", than="WD"),
        replace(ours, text="RR beats Std trained as many seconds, stylised pictures", against={"longer": True}),
        replace(
            ours,
            text="RR with fewer weights beats Ort on stylised pictures",
            than="Ort",
            where={**HONEST, "reduced": True},
            against={"reduced": False},
        ),
        replace(edges, text="RR beats Std on edges of new shapes", paper=0.5),
        replace(edges, text="RR beats Ort on edges of new shapes", than="Ort", paper=0.1675),
        replace(ours, text="RR goes by shape more often than Std", metric="shape_bias"),
    )


PAPER = tuple(
    Paper(
        "test_accuracy",
        STAGE,
        variant,
        value,
        where=where,
        note="there 160 test pictures, ten runs, how split not said",
    )
    for variant, value, where in (("Std", 0.442, HONEST), ("Ort", 0.470, HONEST), ("RR", 0.547, HONEST))
)
