"""The commands of the laboratory, ``racecar_lab``: a package on top of the library, in the same distribution.

The library never imports the laboratory; its commands are opened by name when the command line starts, which needs no
entry point, so that they are there in a plain checkout, too. Without what the extra "lab" installs, each of them says
in one line what to install.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer

from racecar.errors import MissingExtra

COMMANDS = ("list", "run", "sweep", "search", "report", "pack", "film", "data")
NEEDS = ("racecar_lab", "jinja2", "scipy")
"""Packages that every one of the commands is taken to need, though some would do without."""


def add_to(app: typer.Typer) -> None:
    """Add the laboratory's commands to an app, or in their places commands that say what to install."""
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
