"""Command lines in this process."""

from tests.command_line import cli, refused, undrawn

__all__ = ["cli", "refused", "undrawn"]
