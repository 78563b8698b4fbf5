"""The command line, ``racecar``. Without typer and rich it prints one line that says what to install."""

from __future__ import annotations

import os
import sys

from racecar import __version__
from racecar.errors import MissingExtra
from racecar.support import interrupts
from racecar.support.extras import need

__all__ = ["main"]


def main() -> None:
    """Run the command ``racecar`` and exit with status 0, 2 after a user error, 130 when interrupted, 143 when
    terminated."""
    os.environ["PYTHONSAFEPATH"] = "1"  # no Python that is started from here imports from the current folder
    interrupts.listen()
    try:
        status = _run()
    except (KeyboardInterrupt, Exception) as error:  # before there is a command, or at the very end of it
        if not (isinstance(error, KeyboardInterrupt) or interrupts.heard()):  # libraries may call it something else
            raise
        status = interrupts.tell()
    finally:
        interrupts.end()
    raise SystemExit(status)


def _run() -> int:
    """Run the command line and return its exit status."""
    if sys.argv[1:] == ["--version"]:  # needs no extra
        print(f"racecar {__version__}")
        return 0
    try:
        need("typer", "inspect")
        need("rich", "inspect")
    except MissingExtra as error:
        print(f"racecar: {error}", file=sys.stderr)
        return 2
    from racecar.cli.app import run

    return run(sys.argv[1:])
