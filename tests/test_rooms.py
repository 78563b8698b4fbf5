"""Which modules may import which: the library never imports the laboratory, the laboratory imports public names of the
library only, no room imports upward, and there are no circles."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from importlib import import_module

import pytest

from tests.sources import SOURCE, trees

FLOORS = (
    {"errors", "support"},
    {"rules"},
    {"watch"},
    {"plan"},
    {"reverse"},
    {"racecar", "functional", "presets", "orthogonality"},
    {"every", "gradient_share", "inversion"},
    {"inspect", "pretrain"},
    {"integrations"},
    {"bench"},
    {"cli"},
)
"""Rooms of the library, from the ground up: each may import from its own floor and from those below."""

PUBLIC = {
    f"racecar{room}"
    for room in (
        "",
        ".errors",
        ".functional",
        ".inspect",
        ".inspect.style",
        ".orthogonality",
        ".presets",
        ".pretrain",
        ".rules",
    )
}
"""Modules whose public names the laboratory may import, beside all of ``racecar.support``."""
BY_NAME = {
    "cli/laboratory.py": "the laboratory's commands, or what to install for them",
    "cli/bench.py": "nets of the laboratory by name",
}
"""Files of the library that open a module of the laboratory by its name, and why."""


def modules():
    """Name → file of every module; a package has the name of its folder."""
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())
LIBRARY = {name for name in MODULES if name.split(".")[0] == "racecar"}
LABORATORY = MODULES.keys() - LIBRARY


def imports(path):
    """(module, name) of every import of ours, wherever it is: also in functions, and for types alone."""
    for node in ast.walk(trees()[path]):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import, which is not followed here"
            found = [(node.module, one.name) for one in node.names]
        elif isinstance(node, ast.Import):
            found = [(one.name, None) for one in node.names]
        else:
            continue
        yield from (one for one in found if one[0].split(".")[0] in ("racecar", "racecar_lab"))


@pytest.fixture(scope="module")
def named():
    """Module → the (module, name) that it imports."""
    return {name: set(imports(path)) for name, path in MODULES.items()}


@pytest.fixture(scope="module")
def graph(named):
    """Module → the modules that it imports. ``racecar`` itself is left out: it is the public face, and imports what it
    names when asked for it."""
    whole = {
        name: {f"{module}.{one}" if f"{module}.{one}" in MODULES else module for module, one in found}
        for name, found in named.items()
    }
    return {name: found - {name, "racecar"} for name, found in whole.items() if name != "racecar"}


def floor(name):
    return next(i for i, rooms in enumerate(FLOORS) if name.split(".")[1] in rooms)


def test_every_room_has_a_floor(graph):
    assert {name.split(".")[1] for name in graph if name in LIBRARY} == set().union(*FLOORS)


def test_nothing_imports_upward(graph):
    inside = [(name, one) for name in graph if name in LIBRARY for one in graph[name] & LIBRARY]
    assert [(name, one) for name, one in inside if floor(one) > floor(name)] == []


def test_the_library_never_imports_the_laboratory(named):
    found = [(name, module) for name in LIBRARY for module, _ in named[name] if module.split(".")[0] == "racecar_lab"]
    assert found == []
    opens = {
        MODULES[name].relative_to(SOURCE / "racecar").as_posix()
        for name in LIBRARY
        if re.search(r"import_module\([^)]*racecar_lab", MODULES[name].read_text())
    }
    assert opens == BY_NAME.keys()


def is_public(module, name):
    if module.startswith("racecar.support"):
        return True
    if f"{module}.{name}" in PUBLIC or (module in PUBLIC and name is None):
        return True
    public = getattr(import_module(module), "__all__", None) if module in PUBLIC else ()
    return name in public if public is not None else not name.startswith("_")


def test_the_laboratory_imports_public_names_alone(named):
    taken = {one for name in LABORATORY for one in named[name] if one[0].split(".")[0] == "racecar"}
    private = {module for module, name in taken if not is_public(module, name)}
    assert private == set()


def test_nothing_imports_in_a_circle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_no_name_stands_twice():
    """No two classes have one name, and in the core and the bench no two modules: a reader could confuse them."""
    rooms = tuple(f"racecar.{room}." for room in ("support", "rules", "watch", "plan", "reverse", "bench"))
    modules = [name.rpartition(".")[2] for name in MODULES if name.startswith(rooms)]
    nodes = (node for path in MODULES.values() for node in trees()[path].body)
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    assert [name for name in {*modules, *classes} if modules.count(name) > 1 or classes.count(name) > 1] == []


def test_one_module_opens_connections():
    """As docs/privacy.md says: that of `racecar data fetch`, which nothing else calls."""
    network = re.compile(r"(?m)^\s*(?:from|import) (?:urllib\.request|http\.client|socket|requests|aiohttp|ftplib)\b")
    sources = {path: path.read_text() for path in SOURCE.rglob("*.py")}
    opened = [path.name for path, text in sources.items() if network.search(text)]
    assert opened == ["download.py"]
    users = {path.name for path, text in sources.items() if re.search(r"import.*\bdownload\b|datasets\.download", text)}
    assert users == {"fetching.py"}
    callers = [path.name for path, text in sources.items() if re.search(r"import .*\bfetch\b", text)]
    assert sorted(callers) == ["__init__.py", "data.py"]  # racecar_lab.datasets hands it on to the command
