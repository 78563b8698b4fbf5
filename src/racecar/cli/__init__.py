"""The command line. Typer and rich are looked for first, so that without them one line says what to install."""

from __future__ import annotations

import sys

from racecar.errors import MissingExtra
from racecar.extras import need

__all__ = ["main"]


def main() -> None:
    """The command ``racecar``; leaves by SystemExit: 0, 2 for what the user can mend, 130 when interrupted."""
    try:
        need("typer", "inspect")
        need("rich", "inspect")
    except MissingExtra as error:
        print(f"racecar: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        from racecar.cli.app import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before there is a command, or at the very end of it
        status = 130
    raise SystemExit(status)
