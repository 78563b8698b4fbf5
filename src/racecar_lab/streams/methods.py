"""The methods that are compared on the streams, with the weights that are tried with each."""

from __future__ import annotations

from racecar_lab.streams.method import Method


def half_decades(power: int, first: int = 1) -> tuple[tuple[float, float], ...]:
    """Five pairs (weight, 0) for ``Method.weights``, of methods without a second number. The weights are half decades
    upwards from ``first``, 1 or 3, times 10 to ``power``: ``half_decades(-4)`` has the weights 1e-4, 3e-4, 1e-3, 3e-3
    and 1e-2."""
    steps = [float(f"{digit}e{power + i}") for i in range(4) for digit in (1, 3)]
    return tuple((weight, 0.0) for weight in steps[first // 3 :][:5])


LINEAR = half_decades(-1)
"""Pairs (weight, 0) that are tried with most methods that have the penalty ``linear``; some have others."""
MATURITY = 100.0
"""Number of steps after which continual backprop may replace a unit."""

METHODS = {
    method.name: method
    for method in (
        Method("Std", "plain training"),
        Method("L2", "λ Σ‖θ‖² in the loss", penalty="l2", weights=half_decades(-4)),
        Method("L2 Init", "λ Σ‖θ − θ₀‖² in the loss", penalty="l2-init", weights=half_decades(-4)),
        Method(
            "Shrink & Perturb",
            "after every step (1 − p) θ + σ times a fresh start",
            change="shrink-and-perturb",
            weights=((1e-4, 3e-3), (1e-4, 1e-2), (3e-4, 1e-2), (1e-3, 1e-2), (1e-3, 3e-2)),
            second_meaning="σ",
        ),
        Method("Orthogonality", "λ Σ‖WᵀW − I‖²", penalty="orthogonality", weights=half_decades(-4)),
        Method("Parseval", "λ Σ (64 / width)² ‖W Wᵀ − 2 I‖²", penalty="parseval", weights=half_decades(-5)),
        Method("Spectral", "λ Σ (σ² − 1)² + ‖b‖⁴", penalty="spectral", weights=half_decades(-3)),
        Method(
            "Spectral without head",
            "the same with the head left out",
            penalty="spectral-without-head",
            weights=half_decades(-3, 3),
        ),
        Method("LayerNorm", norm="layer"),
        Method("BatchNorm", norm="batch"),
        Method("CReLU", "[relu(z), relu(−z)], as many parameters as with ReLU", activation="crelu"),
        Method(
            "ReDo",
            "dormant units start anew, Adam's moments are cleared",
            change="redo",
            weights=((0.0, 1e3), (0.01, 1e3), (0.1, 1e3), (0.0, 1e4), (0.1, 1e4)),
            second_meaning="steps between checks",
        ),
        Method(
            "Continual backprop",
            "mature units of lowest utility start anew, Adam's moments are cleared",
            change="continual-backprop",
            weights=tuple((rate, MATURITY) for rate, _ in half_decades(-5)),
            second_meaning="maturity in steps",
        ),
        Method("Reset", "a new net for every task: the upper line", change="reset"),
        Method("RR", "the paper's loss, one way back", reverse="full", weights=half_decades(-5)),
        Method("lRR", "the paper's loss, layer by layer", reverse="layerwise", weights=half_decades(-5)),
        Method("LayerNorm + L2", norm="layer", penalty="l2", weights=half_decades(-4)),
        Method("LayerNorm + Orthogonality", norm="layer", penalty="orthogonality", weights=half_decades(-4)),
        Method("CReLU + Orthogonality", activation="crelu", penalty="orthogonality", weights=half_decades(-4)),
        Method("linear", "λ · mean of ‖AᵀA h − h‖² / ‖h‖²", penalty="linear", weights=LINEAR),
        Method("linear 1/4", "on a quarter of each batch", penalty="linear", fraction=1 / 4, weights=LINEAR),
        Method("linear 1/8", "on an eighth of each batch", penalty="linear", fraction=1 / 8, weights=LINEAR),
        Method(
            "linear by ratio",
            "λ from the share that its gradient's norm has of the task's",
            penalty="linear",
            coupling="ratio",
            weights=half_decades(-3, 3),
        ),
        Method(
            "linear decoupled",
            "a step of its own after the optimiser's",
            penalty="linear",
            coupling="decoupled",
            weights=half_decades(0),
        ),
        Method("linear + LayerNorm", norm="layer", penalty="linear", weights=LINEAR),
        Method("linear + CReLU", activation="crelu", penalty="linear", weights=half_decades(-2)),
        Method(
            "linear on random h",
            "is it the data? h is normal random numbers",
            penalty="linear",
            h_from="random",
            weights=half_decades(-2),
        ),
        Method(
            "linear on earlier h",
            "h from samples of an earlier task",
            penalty="linear",
            h_from="earlier",
            weights=LINEAR,
        ),
    )
}
"""All methods by name, in the order of tables."""
