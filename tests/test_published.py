"""The files of a clone: links and pictures of pages exist, and results are few files."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)
MADE = ("report.html", "weights", "checkpoints")
"""What runs and `racecar report` leave in a folder, and git ignores."""


def links(page: Path) -> list[tuple[Path, str]]:
    """Files and anchors that a page leads to, but for addresses."""
    found = LINK.findall(CODE.sub("", page.read_text()))
    parts = [link.partition("#") for link in found if "://" not in link and not link.startswith("mailto:")]
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub names them, and anchors by hand."""
    text = page.read_text()
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads)
    return {*plain, *re.findall(r'<a id="([^"]+)">', text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for file, anchor in links(page):
        assert file.exists()
        assert not anchor or anchor in anchors(file)


def test_every_picture_is_shown():
    """No picture is stored that no page shows."""
    shown = {file for page in PAGES for file, _ in links(page)}
    pictures = {path for kind in ("svg", "png", "gif") for path in ROOT.glob(f"**/*.{kind}")}
    kept = {path for path in pictures if path.relative_to(ROOT).parts[0] in ("docs", "results")}
    assert kept - shown == set()


def test_results_are_few_files():
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    files = [path for path in files if not set(path.relative_to(ROOT).parts) & set(MADE)]
    assert max(Counter(path.relative_to(ROOT).parts[1] for path in files).values()) <= 9
    assert sum(path.stat().st_size for path in files) <= 20 * 2**20
