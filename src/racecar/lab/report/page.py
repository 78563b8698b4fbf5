"""The page as HTML, and the same in Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from racecar.inspect.style import look
from racecar.lab.report import words
from racecar.lab.report.how import HOW
from racecar.lab.report.page_table import Table
from racecar.lab.report.section import Section, tally
from racecar.lab.report.statistics import HOLDS, IN_PART, NOT, NOT_RUN, SO_FAR, TOO_FEW
from racecar.support.extras import need

_SIGNS = {HOLDS: "✓", SO_FAR: "◔", IN_PART: "◐", NOT: "✗", TOO_FEW: "…", NOT_RUN: "–"}
_SHAPES = {"o": "●", "s": "■", "P": "✚", "^": "▲", "v": "▼", "D": "◆"}


@dataclass(frozen=True, eq=False)
class Page:
    """All that is shown."""

    title: str
    made: datetime
    overview: Table | None
    """All claims; None if nothing is claimed."""
    sections: Sequence[Section]
    problems: Sequence[str]
    """What could not be read or drawn."""

    @property
    def when(self) -> str:
        return words.day(self.made)

    @property
    def tally(self) -> str:
        """How many experiments and claims, what became of them, and what is no evidence."""
        findings = [found for one in self.sections for found in one.findings]
        counted = words.count(len({one.name for one in self.sections}), "experiment")
        marks = dict.fromkeys(one.mark for one in self.sections if one.mark)
        return "; ".join([counted + (f", {tally(findings)}" if findings else ""), *marks])


def to_html(page: Page) -> str:
    """One file that needs nothing else: style, script, figures are inside, and the browser is told to load no more."""
    style, script = _file("page.css"), _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return str(_templates(True).get_template("page.html").render(page=page, style=style, script=script, digest=digest))


def to_markdown(page: Page, folder: str) -> str:
    """The same tables and verdicts; the main figures are linked from a folder beside it, a sheet for each section."""
    text = _templates(False).get_template("page.md").render(page=page, folder=folder)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def sheet_name(section: Section) -> str:
    """File name of a section's figures."""
    return f"{section.anchor}.svg"


def markdown(text: str) -> str:
    """Text that Markdown takes as it stands, in a table too."""
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def fenced(text: str) -> str:
    """A block of code; its fence is longer than any inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


def bar(ends: tuple[float, float, float]) -> dict[str, float]:
    """Where an interval is drawn on a line from −100 to 100, with 0 in its middle."""
    reach = max(map(abs, ends)) or 1.0
    return {name: round(100 * end / reach, 1) for name, end in zip(("low", "middle", "high"), ends, strict=True)}


def swatch(variant: str) -> dict[str, str]:
    """The mark of a variant, as in the figures."""
    style = look(variant)
    return {"colour": style["color"], "shape": _SHAPES.get(style["marker"], "✖")}


@cache
def _templates(escape: bool) -> Any:
    jinja2 = need("jinja2", "lab")
    templates = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"md": markdown, "fenced": fenced, "bar": bar}
    templates.globals |= {"sheet_name": sheet_name, "how": HOW, "sign": _SIGNS.get, "swatch": swatch}
    return templates


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
