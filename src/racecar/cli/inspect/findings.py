"""Write the report of ``racecar inspect``: report.md for people, report.json for programs, and the figures."""

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
    """One chapter of the report: a measurement with its table and figures."""

    name: str
    """Key in report.json."""
    title: str
    """Heading in report.md."""
    words: str = ""
    """Paragraph that explains the numbers."""
    table: str = ""
    """The numbers as a plain-text table."""
    record: Any = None
    """The numbers for report.json."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """File name without suffix → matplotlib figure."""
    finding: str = ""
    """The result in one sentence, also printed on the screen."""


def write_report(out: Path, title: str, facts: Mapping[str, Any], sections: Sequence[Chapter]) -> list[Path]:
    """Write report.md, report.json and every figure as SVG and PNG; no file appears before all are ready.

    Args:
        out: the folder to write to, made if it is missing.
        title: heading of report.md.
        facts: name → value: which model was measured, on what and how.
        sections: the chapters, in the order of report.md.

    Returns:
        The paths of the files.
    """
    from racecar.inspect.style import save

    parent = out if out.is_dir() else out.parent  # on the same disk, and already checked to be writable
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".racecar-", dir=parent) as temporary:
        folder = Path(temporary)
        write_text(folder / "report.md", _page(title, facts, sections))
        write_json(folder / "report.json", _plain({**facts, **{chapter.name: chapter.record for chapter in sections}}))
        for chapter in sections:
            for name, figure in chapter.figures.items():
                save(figure, folder / name)
        out.mkdir(exist_ok=True)
        names = sorted(file.name for file in folder.iterdir())
        for name in names:
            os.replace(folder / name, out / name)
    return [out / name for name in names]


def _page(title: str, facts: Mapping[str, Any], sections: Sequence[Chapter]) -> str:
    """The text of report.md."""
    parts = [f"# {title}", "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for chapter in sections:
        parts += [f"## {chapter.title}", chapter.finding, chapter.words]
        parts += [f"```text\n{chapter.table}\n```" if chapter.table else ""]
        parts += [f"![{chapter.title}]({name}.png)" for name in chapter.figures]
    return "\n\n".join(filter(None, parts)) + "\n"


def _plain(content: Any) -> Any:
    """``content`` as JSON can have it: infinity and NaN become text."""
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
