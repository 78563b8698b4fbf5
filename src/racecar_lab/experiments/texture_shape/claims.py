"""Claims of texture-shape and the paper's numbers. The claims are few, because five folds can decide only few."""

from __future__ import annotations

from dataclasses import replace

from racecar_lab.datasets.texture_shape import FOLDS
from racecar_lab.experiment import Claim, Paper

HONEST = {"split": "shape", "longer": False, "reduced": False}
"""Field of the configuration → its value in the claims: test shapes that training does not show, usual length, all
weights. Each recipe and loss is judged by itself."""
STAGE = "AA"
"""Name of the stage that the paper measures, in which the net is fine-tuned."""
TIME = 0.4186
"""Time of an epoch of RR beyond that of Std, as a share of the latter, in the paper."""
WEIGHTS = 0.6794
"""Number of weights of the paper's reduced net, as a share of the full net's."""


def claims() -> tuple[Claim, ...]:
    """All claims of texture-shape."""
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
