"""Names of layers, which are the qualified names of their modules, and patterns that choose layers by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from racecar.support.torch_private import at_trace_time

MODEL = "(model)"
"""How the model itself is written for a reader: its qualified name is the empty string."""

HEAD = "@head"
"""A pattern for the head: the last weighted operation on the way to each output, whatever its name."""

Names = Sequence[str]
"""All names of one layer: the one that is shown comes first, then other spellings."""


def shown(name: str) -> str:
    """A layer's name as it is written in tables and messages."""
    return name or MODEL


@at_trace_time  # torch.compile cannot look into fnmatch
def matches(pattern: str, names: Names) -> bool:
    """Whether a pattern (fnmatch) matches one of the names of a layer."""
    return any(fnmatchcase(name, pattern) for name in names)


def choose(patterns: Iterable[str], layers: Sequence[Names], what: str, labels: Names = ()) -> list[int]:
    """The indices of the layers that any of the patterns matches; arguments as for ``check_patterns``."""
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
    """Raise ``ValueError`` for a pattern that matches no layer; the message names layers that it may mean.

    Args:
        patterns: to check.
        layers: the names of each layer of the plan.
        what: what the message calls a pattern.
        unseen: the names of layers that no call has used so far, which a pattern may match as well.
        labels: what the message calls the layers, if not by their names.
        parts: module or parameter that is no layer, but a part of a layer's weight → the layer's name.
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
