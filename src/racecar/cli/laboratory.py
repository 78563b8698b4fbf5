"""Add the commands of the laboratory, the package ``racecar_lab`` of the same distribution, to the command line.

The library never imports the laboratory. The command line imports its commands by name, without an entry point, so that
they also work in a plain checkout. Without the packages of the extra "lab", each command says in one line what to
install.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer

from racecar.errors import MissingExtra

COMMANDS = ("list", "run", "sweep", "search", "report", "film", "data")
NEEDS = ("racecar_lab", "jinja2", "scipy")
"""Packages without which none of the laboratory's commands is offered, though not every command needs all."""


def add_to(app: typer.Typer) -> None:
    """Add the laboratory's commands to an app or, if a package is missing, commands that say what to install."""
    missing = next((name for name in NEEDS if find_spec(name) is None), None)
    if missing is None:
        import_module("racecar_lab.cli.commands").add_to(app)
        return

    def say_what_to_install() -> None:
        raise MissingExtra(f"this needs {missing}: pip install 'racecar-training[lab]'")

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    for name in COMMANDS:
        note = "Of the laboratory: pip install 'racecar-training[lab]'."
        app.command(name, help=note, context_settings=anything)(say_what_to_install)
