"""What ``racecar inspect`` found, as files: a page for people, the numbers for programs, and the figures."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from racecar.support.files import write_json, write_text


@dataclass(frozen=True)
class Chapter:
    """One look into a network, as a chapter of its report."""

    name: str
    """Its key in the numbers."""
    title: str
    words: str = ""
    """What to know when reading it."""
    table: str = ""
    """In plain text."""
    record: Any = None
    """What goes into the JSON file."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """File name without its ending → figure of matplotlib."""
    finding: str = ""
    """What came out, in a sentence for the screen."""


def write_report(out: Path, title: str, facts: Mapping[str, Any], sections: Sequence[Chapter]) -> list[Path]:
    """Write report.md, report.json and every figure as SVG and PNG; nothing appears before all is made.

    Args:
        out: a folder, made if it is missing.
        title: heading of the page.
        facts: what was looked at, and how; names and values.
        sections: in the order of the page.

    Returns:
        The files.
    """
    from racecar.inspect.style import save

    place = out if out.is_dir() else out.parent  # on the same disk, and where it was seen that one can write
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".racecar-", dir=place) as made:
        folder = Path(made)
        write_text(folder / "report.md", _page(title, facts, sections))
        write_json(folder / "report.json", _plain({**facts, **{one.name: one.record for one in sections}}))
        for one in sections:
            for name, figure in one.figures.items():
                save(figure, folder / name)
        out.mkdir(exist_ok=True)
        names = sorted(file.name for file in folder.iterdir())
        for name in names:
            os.replace(folder / name, out / name)
    return [out / name for name in names]


def _page(title: str, facts: Mapping[str, Any], sections: Sequence[Chapter]) -> str:
    parts = [f"# {title}", "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for one in sections:
        parts += [f"## {one.title}", one.finding, one.words, f"```text\n{one.table}\n```" if one.table else ""]
        parts += [f"![{one.title}]({name}.png)" for name in one.figures]
    return "\n\n".join(filter(None, parts)) + "\n"


def _plain(content: Any) -> Any:
    """For JSON, which knows no infinite number and no NaN: those become words."""
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
