"""The laboratory's commands of ``racecar``."""

from __future__ import annotations

import typer

from racecar_lab.cli.data import data
from racecar_lab.cli.film import film
from racecar_lab.cli.listing import list_experiments
from racecar_lab.cli.report import report
from racecar_lab.cli.run import run_experiment, sweep
from racecar_lab.cli.search import search


def add_to(app: typer.Typer) -> None:
    """Add the commands to an app, with names and examples; options and help are in each function."""
    app.command("list", epilog="Example: racecar list")(list_experiments)
    app.command("run", epilog="Example: racecar run peaks --seeds 5 --set lr=1e-4 --out out/peaks")(run_experiment)
    app.command(epilog="Example: racecar sweep information --over weight=1e-3,1e-2,1e-1 --engine vmap")(sweep)
    app.command(epilog="Example: racecar search information --engine vmap --set optimiser=sgd")(search)
    app.command(epilog="Example: racecar report out/peaks --open")(report)
    app.command(epilog="Example: racecar film out/smoke --variants Std,RR --data ~/data --out smoke.gif")(film)
    app.add_typer(data, name="data")
