"""How layers are called: by the qualified name of their module, and what stands for the model itself."""

from __future__ import annotations

MODEL = "(model)"
"""The model itself where a person reads or writes it: its qualified name is the empty string."""


def shown(name: str) -> str:
    """A layer's name for tables and messages."""
    return name or MODEL
