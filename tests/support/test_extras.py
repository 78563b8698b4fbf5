"""What needs more than torch says which extra brings it, and the extra does."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from racecar import MissingExtra
from racecar.support.extras import need
from tests.sources import SOURCE, trees

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]


# --- need ---------------------------------------------------------------------------------------------------------


def test_what_is_there_is_returned():
    import json.decoder

    assert need("json", "inspect") is json
    assert need("json.decoder", "inspect") is json.decoder


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part.of_it"])
def test_what_is_missing_is_named(module: str):
    with pytest.raises(MissingExtra) as caught:
        need(module, "lab")
    assert str(caught.value) == f"this needs no_such_package: pip install '{NAME}[lab]'"
    assert isinstance(caught.value, ImportError)
    assert caught.value.__suppress_context__, "one error, not two"


def test_a_hidden_package_counts_as_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingExtra, match=re.escape(f"'{NAME}[inspect]'")):
        need("rich", "inspect")


BROKEN = {
    "needs_another": ("import no_such_dependency", ModuleNotFoundError, "no_such_dependency"),
    "old_dependency": ("from json import no_such_name", ImportError, "no_such_name"),
    "no_import_error": ("raise RuntimeError('of its own')", RuntimeError, "of its own"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_package_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    """To install the extra again would not help."""
    code, error, message = BROKEN[name]
    (tmp_path / f"broken_{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=message) as caught:
        need(f"broken_{name}", "inspect")
    assert not isinstance(caught.value, MissingExtra)


# --- the extras bring what they promise ---------------------------------------------------------------------------

DISTRIBUTIONS = {"PIL": "pillow", "phi": "phiflow", "sklearn": "scikit-learn"}


def brought(extra: str) -> set[str]:
    """Every package that an extra installs, extras within extras too."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"].get(extra, ()):
        inner = re.fullmatch(rf"{NAME}\[(.+)\]", requirement)
        parts = [brought(one) for one in inner[1].split(",")] if inner else []
        found = found.union(*parts, () if inner else {re.split(r"[^\w.-]", requirement)[0].lower()})
    return found


def needs() -> list[tuple[str, str, str]]:
    """(file, package, extra) of every `need(…)` in the source."""
    found = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
                module, extra = (one.value for one in node.args if isinstance(one, ast.Constant))
                found.append((str(path.relative_to(SOURCE)), module.partition(".")[0], extra))
    return found


def test_every_extra_brings_what_is_needed():
    found = needs()
    assert found
    missing = [one for one in found if DISTRIBUTIONS.get(one[1], one[1]) not in brought(one[2])]
    assert not missing


def test_nothing_tells_to_install_the_package_that_is_called_racecar():
    """On the package index that name is somebody else's."""
    assert NAME == "racecar-training"
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *SOURCE.rglob("*.py"),
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
    ]
    stranger = re.compile(r"pip install\b[^#\n]*\bracecar(?![-_]training)\b(?!/)|\bracecar\[[a-z]")
    found = [f"{path.name}: {hit[0]}" for path in texts for hit in stranger.finditer(path.read_text())]
    assert not found
