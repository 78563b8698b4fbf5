"""What mkdocs needs to make a site of pages that are written for a git web page.

Pages lead out of docs/: to README.md, results/ and examples/, by relative paths. Those join the site, README.md as its
first page, an example as a page with its code. A link to anything else in the repository (a source file) becomes text.
Nothing that a page loads may come from another machine: the build fails where it does.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RENAMED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Path in the repository → path in the site."""
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)|!\[([^\]]*)\]\(([^)\s]+)\)")
OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*rel=["']?(?:stylesheet|preload|preconnect|dns-prefetch|icon))[^>]*href=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:@import\s+|url\()\s*(?:url\()?["']?((?:https?:)?//[^"')\s]+)"""
)


def in_site(path: str) -> str | None:
    """Where a file of the repository stands in the site; None where it does not."""
    if path in RENAMED:
        return RENAMED[path]
    folder, _, rest = path.partition("/")
    if folder == "docs":
        return rest
    if folder == "results" and path.endswith((".md", ".svg", ".png")):
        return path
    if folder == "examples" and path.endswith(".py"):
        return f"{path[:-3]}.md"
    return None


def in_repository(path: str) -> str:
    """Where a page of the site stands in the repository."""
    if path in RENAMED.values():
        return {new: old for old, new in RENAMED.items()}[path]
    if path.startswith("examples/"):
        return f"{path[:-3]}.py"
    return path if path.startswith("results/") else f"docs/{path}"


def relinked(text: str, page: str) -> str:
    """A page's text with links that hold in the site; ``page`` is its path there."""
    here = posixpath.dirname(in_repository(page))

    def link(match: re.Match[str]) -> str:
        words, target, alt, picture = match.groups()
        file, mark, anchor = (target or picture).partition("#")
        if not file or re.match(r"[a-z]+:", file):
            return match[0]
        place = in_site(posixpath.normpath(posixpath.join(here, file)))
        if place is None:
            return words
        place = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"![{alt}]({place})" if words is None else f"[{LINK.sub(link, words)}]({place}{mark}{anchor})"

    return outside_code(text, lambda part: LINK.sub(link, part))


def outside_code(text: str, change: Any) -> str:
    """The text, changed where it is not code."""
    kept: list[str] = []

    def put_by(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    return re.sub("\0(\\d+)\0", lambda mark: kept[int(mark[1])], change(CODE.sub(put_by, text)))


def loads(text: str) -> list[str]:
    """Addresses on other machines from which a page or a style sheet would load something to show itself."""
    return [next(filter(None, found)) for found in OUTSIDE.findall(text)]


# --- what mkdocs calls --------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Pages and figures from outside of docs/."""
    from mkdocs.structure.files import File

    outside = [*RENAMED, *(f"{folder}/{one}" for folder in ("results", "examples") for one in _below(ROOT / folder))]
    for path in outside:
        place = in_site(path)
        if place is None:
            continue
        if path.endswith(".py"):
            code = (ROOT / path).read_text()
            made = File.generated(config, place, content=f"# {path}\n\n```python\n{code}```\n")
        else:
            made = File.generated(config, place, abs_src_path=str(ROOT / path))
        files.append(made)
    return files


def _below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that hold in the site, and Markdown inside of what is folded."""
    return relinked(markdown, page.file.src_uri).replace("<details>", '<details markdown="1">')


def on_post_build(config: Any) -> None:
    """The site shows itself without the network."""
    from mkdocs.exceptions import PluginError

    for folder, _, names in os.walk(config["site_dir"]):
        for name in names:
            if name.endswith((".html", ".css")):
                found = loads((Path(folder) / name).read_text())
                if found:
                    raise PluginError(f"{name} loads {found[0]}: nothing may come from another machine")
