"""Claims of hindcast, fixed before the runs, but after a look at small nets of one seed, in which a second network was
ahead: ReLUs, the size of a step and the values of λ were chosen there."""

from __future__ import annotations

from racecar_lab.experiment import Claim

SEEDS = 10
"""Number of seeds that a claim needs at least to be judged."""
FORECAST = 0.1
"""Share by which RR's forecasts may be worse than Std's, or better."""
VISCOUS = 2.0
"""Viscosity with which waves forget: after 50 steps, modes that were 0.84 of the first state, by its norm, are damped
below 1 %."""
GONE = 0.1
"""Part of the first state by which RR's hindcast may still be ahead of Std's where the system forgets."""
RIVALS = {
    "Std run backwards": ("Std", "A"),
    "Ort run backwards": ("Ort", "A"),
    "an inverse network of half the size": ("Std", "half"),
    "an inverse network of the same size": ("Std", "inverse"),
    "the cycle loss, RR1": ("RR1", "A"),
    "a coupling network": ("Std", "coupling"),
}
"""Rival of RR run backwards → its variant and stage. RR is refuted as a way to step back if it does not beat all of the
first three."""


def claims() -> tuple[Claim, ...]:
    """Claims about each system without viscosity, and about waves that forget."""
    result = [claim for system in ("waves", "advection") for claim in _of_system(system)]
    result += [
        Claim(
            "RR run backwards knows more of the first state where the system does not forget", "known_backward", "A",
            "RR", "RR", minimum_seeds=SEEDS, design={"system": "waves"}, where={"viscosity": 0.0},
            against={"viscosity": VISCOUS},
        ),
        Claim(
            "where the system forgets, RR run backwards knows no more of the first state than Std", "known_backward",
            "A", "RR", "Std", minimum_seeds=SEEDS, margin=GONE,
            design={"system": "waves", "viscosity": VISCOUS},
        ),
    ]  # fmt: skip
    return tuple(result)


def _of_system(system: str) -> list[Claim]:
    """RR run backwards beats every rival, RR1 the half-size net, and RR forecasts as well as Std."""
    design = {"system": system, "viscosity": 0.0}
    back = [
        Claim(
            f"RR run backwards beats {rival}: {system}", "backward_10", "A", "RR", variant, higher=False,
            minimum_seeds=SEEDS, relative=True, than_stage=stage, design=design,
        )
        for rival, (variant, stage) in RIVALS.items()
    ]  # fmt: skip
    cycle = Claim(
        f"RR1, the cycle loss, beats an inverse network of half the size: {system}", "backward_10", "A", "RR1", "Std",
        higher=False, minimum_seeds=SEEDS, relative=True, than_stage="half", design=design,
    )  # fmt: skip
    forecast = Claim(
        f"RR forecasts as well as Std: {system}", "forward_10", "A", "RR", "Std", higher=False, minimum_seeds=SEEDS,
        margin=FORECAST, relative=True, design=design,
    )  # fmt: skip
    return [*back, cycle, forecast]
