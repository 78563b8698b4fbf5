"""Docstrings as the reference shows them: each parameter with its own type, and names without Sphinx's roles."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SEVERAL = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +.*)*)$", re.MULTILINE)
"""``a, b: what both are``, with the lines that go on with it."""
ROLE = re.compile(r":(?:class|func|meth|mod):(`[^`]+`)")


class OneByOne(Extension):
    """Several parameters that share a line get a line each, since each has a type of its own."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = one_by_one(obj.docstring.value)


def one_by_one(text: str) -> str:
    def split(match: re.Match[str]) -> str:
        indent, names, what = match.groups()
        return "\n".join(f"{indent}{name}: {what}" for name in names.split(", "))

    head, args, rest = text.partition("Args:\n")
    return ROLE.sub(r"\1", head + args + SEVERAL.sub(split, rest))
