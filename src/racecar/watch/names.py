"""How layers are called: by the qualified name of their module; and the patterns that choose among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from racecar.support.torch_private import at_trace_time

MODEL = "(model)"
"""The model itself where a person reads or writes it: its qualified name is the empty string."""

HEAD = "@head"
"""A pattern for the last weighted operation on the way to each output, whatever it is called."""

Names = Sequence[str]
"""How one layer may be called: its own name first, then other spellings."""


def shown(name: str) -> str:
    """A layer's name for tables and messages."""
    return name or MODEL


@at_trace_time  # torch.compile cannot look into fnmatch
def matches(pattern: str, names: Names) -> bool:
    """Whether a pattern (fnmatch) fits one of the names of a layer."""
    return any(fnmatchcase(name, pattern) for name in names)


def choose(patterns: Iterable[str], layers: Sequence[Names], what: str, labels: Names = ()) -> list[int]:
    """The layers, by index, that some pattern matches; refuses a pattern that matches none (see below)."""
    patterns = list(patterns)
    check_patterns(patterns, layers, what, labels=labels)
    return [i for i, names in enumerate(layers) if any(matches(pattern, names) for pattern in patterns)]


def check_patterns(
    patterns: Iterable[str],
    layers: Sequence[Names],
    what: str,
    unseen: Sequence[Names] = (),
    labels: Names = (),
    parts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a pattern that matches no layer, and name those that it may mean.

    Args:
        what: the patterns are, for the message.
        unseen: layers that were not seen so far, which a pattern may match as well.
        labels: how the layers are listed, if not by their names.
        parts: what is no layer, but whose weight is a part of that of a layer → the layer's name.
    """
    for pattern in patterns:
        if not any(matches(pattern, names) for names in (*layers, *unseen)):
            spellings = {name: None for names in (*layers, *unseen) for name in names if name}
            near = " or ".join(map(repr, get_close_matches(pattern, spellings)))
            hint = f" (did you mean {near}?)" if near else ""
            part = next((name for name in parts if matches(pattern, (name,))), None)
            if part is not None:
                whole = shown(parts[part])
                hint = f": {shown(part)!r} is part of layer {whole!r}, which has one λ; give it as {whole!r}"
            known = ", ".join(labels or (repr(shown(names[0])) for names in layers))
            raise ValueError(f"{what} {pattern!r} matches no layer{hint}; the layers are: {known}")
