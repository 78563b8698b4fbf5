"""docs/hook.py: pages that are written for a git web page become a site that needs no network."""

import re
import tomllib
from pathlib import Path

import pytest

import racecar
from docs.hook import in_repository, in_site, loads, relinked
from racecar import errors, inspect, orthogonality, pretrain
from tests.test_published import PAGES, links

ROOT = Path(__file__).parent.parent
SITE = [page for page in PAGES if in_site(page.relative_to(ROOT).as_posix())]


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_the_same_files(page):
    """A link to a file of the site leads there from the page's new place; one to a source file is text."""
    place = in_site(page.relative_to(ROOT).as_posix())
    assert in_repository(place) == page.relative_to(ROOT).as_posix()
    before = [(file, anchor) for file, anchor in links(page) if in_site(file.relative_to(ROOT).as_posix())]
    there = ROOT / "build" / "site" / place
    moved = re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^(`{3,}).*?^\1|`[^`\n]+`", "", relinked(page.read_text(), place))
    )
    found = []
    for link in moved:
        if "://" not in link:
            file, _, anchor = link.partition("#")
            to = (there.parent / file).resolve().relative_to(ROOT / "build" / "site").as_posix() if file else place
            found.append((ROOT / in_repository(to), anchor))
    assert found == before


def test_links_by_hand():
    text = "[a](../results/zoo/zoo.md#x) [b `c`](../src/racecar/racecar.py) ![d](images/e.svg) `[f](../README.md)` [g](https://h)"
    moved = "[a](results/zoo/zoo.md#x) b `c` ![d](images/e.svg) `[f](../README.md)` [g](https://h)"
    assert relinked(text, "loss.md") == moved
    assert relinked("`a` [`b`](docs/when.md)", "index.md") == "`a` [`b`](when.md)"
    assert relinked("[![a](images/b.svg)](../examples/c.py)", "loss.md") == "[![a](images/b.svg)](examples/c.md)"
    assert relinked("[[a]](../../docs/loss.md)", "results/peaks/report.md") == "[[a]](../../loss.md)"


@pytest.mark.parametrize(
    "text",
    [
        '<script defer src="https://cdn.example/x.js"></script>',
        "<link rel=stylesheet href=//fonts.example/css>",
        '<link href="https://fonts.example" rel="preconnect" crossorigin>',
        "<style>@import 'https://fonts.example/css';</style>",
        "@font-face{src:url(https://fonts.example/a.woff2)}",
        '<img alt="" src="http://badge.example/b.svg">',
    ],
)
def test_what_would_load_from_elsewhere_is_found(text):
    assert len(loads(text)) == 1


def test_addresses_to_follow_are_no_loads():
    assert (
        loads(
            '<a href="https://arxiv.org/abs/1"><script src="assets/x.js"></script><link rel="canonical" href="https://a">'
        )
        == []
    )


def test_the_extra_is_pinned():
    """All packages that build the site have pinned versions."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {re.match(r"[\w-]+", one)[0] for one in wanted} <= pinned


def test_the_reference_has_every_public_name():
    """Those of errors are shown as one module."""
    named = set(re.findall(r"\w+", (ROOT / "docs" / "api.md").read_text())) | vars(errors).keys()
    public = {name for module in (racecar, racecar.rules, inspect, orthogonality, pretrain) for name in module.__all__}
    assert public - named == set()
