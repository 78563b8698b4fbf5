"""``racecar explain``: how the reverse pass would treat every layer of a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from racecar.cli.target import options

if TYPE_CHECKING:
    from racecar.plan.plan import Plan
    from racecar.reverse.weights import Weight

Mode = Annotated[
    str | None,
    typer.Option(
        "--mode", metavar="MODE", help="auto, full, layerwise, input or linear. Without it: as Racecar's default."
    ),
]
Lambda = Annotated[
    list[str] | None,
    typer.Option("--lambda", metavar="[PATTERN=]λ", help="Weight of the layers that a pattern matches; repeatable."),
]


def explain(
    target: options.Target,
    shape: options.Input = "",
    mode: Mode = None,
    weights: options.Weights = None,
    lambdas: Lambda = None,
    seed: options.Seed = 0,
) -> None:
    """Print the plan: how the reverse pass treats every layer, and why. The model is planned in evaluation mode."""
    from racecar.cli.target.target import open_target
    from racecar.racecar import call_arguments
    from racecar.reverse.engine import plan_of
    from racecar.reverse.settings import Settings

    weight = read_weight(lambdas or [], Settings.weight)
    settings = Settings(Settings.mode if mode is None else mode, weight)  # refuses bad values before the model is built
    opened = open_target(target, shape, weights, seed)
    plan = plan_of(opened.model, *call_arguments(opened.example(seed)), settings)
    print(opened)
    if sys.stdout.isatty():
        show(plan)
    else:
        print(plan)


def show(plan: Plan) -> None:
    """Print the plan as a table on a terminal."""
    from racecar.plan.plan import COLUMNS
    from racecar.support.console import print_table

    print_table(COLUMNS, [row.cells for row in plan.rows()], plan.summary)


def read_weight(texts: list[str], default: Weight) -> Weight:
    """λ from the values of ``--lambda``, each "0.1" or "PATTERN=0.1", later ones win; without any the default."""
    weights: dict[str, float] = {}
    for text in texts:
        pattern, equals, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"--lambda {text!r}: give a number, or PATTERN=NUMBER") from None
        key = pattern if equals else "*"
        weights.pop(key, None)  # so that the order of the dict is that of the command line
        weights[key] = number
    return weights or default
