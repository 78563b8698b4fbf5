"""All commands as one typer app, and the exit status and message of their errors."""

from __future__ import annotations

import functools
import re
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.main import get_command

from racecar.cli import laboratory
from racecar.cli.bench import bench
from racecar.cli.inspect.explain import explain
from racecar.cli.inspect.inspect import inspect
from racecar.support import console, interrupts
from racecar.support.console import one_line, warnings_as_notes

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
app.command(epilog="Example: racecar explain torchvision:resnet50 --input 1,3,224,224")(explain)
app.command(epilog="Example: racecar inspect mymodels:net --input 8,3,64,64 --data pictures --out look")(inspect)
laboratory.add_to(app)
app.command(epilog="Example: racecar bench --models resnet50,vit --fractions 1,1/8 --out bench.json")(bench)

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The exception that typer raises for wrong options and arguments; typer has no public name for it."""
USER_ERRORS = (ValueError, TypeError, ImportError, OSError, UsageError)

LONG = {"run", "sweep", "search", "bench", "inspect", "fetch", "make"}
"""Commands that take long: when one is interrupted, a line says how to continue it."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; errors that are not the user's are raised."""
    debug = "--debug" in arguments  # anywhere, because it is added to a command that just failed
    console.given, interrupts.advice = tuple(arguments), interrupts.AGAIN if LONG.intersection(arguments) else ""
    try:
        refuse_empty(arguments)
        with warnings_as_notes():
            status = _command().main([a for a in arguments if a != "--debug"], "racecar", standalone_mode=False)
        return interrupts.tell() if status == 130 else status or 0  # which is what typer makes of an interrupt
    except USER_ERRORS as error:
        if interrupts.heard():  # what it was doing says it in its own way
            return interrupts.tell()
        if debug:
            traceback.print_exception(error)
        text = message(error)
        if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands on its own: the message is its help
            print(text)
            return 0
        print(f"racecar: {one_line(text) or type(error).__name__}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return interrupts.tell()


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise for empty arguments, as ``--out "$DIR"`` with DIR unset: as a path "" would be the current folder."""
    for previous, argument in pairwise(("", *arguments)):
        no_value = re.fullmatch("--[a-z-]+=", argument)
        option = argument.removesuffix("=") if no_value else previous if not argument else None
        if option is not None:
            name = option if option.startswith("-") else "an argument"
            raise ValueError(f"{name} is empty: give it a value, or leave it out")


def message(error: Exception) -> str:
    """The text of an error for the user; for a file, "FILE: reason" without the system's error number."""
    if hasattr(error, "format_message"):
        return str(error.format_message())
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@functools.cache
def _command() -> Any:
    """The click command with all subcommands and options, made from the functions' signatures once."""
    return get_command(app)


def _version(asked: bool) -> None:
    if asked:
        from racecar import __version__

        typer.echo(f"racecar {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def racecar(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")] = False,
) -> None:
    """Networks that run backwards: see what the reverse pass makes of a model, and what the model learned."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
