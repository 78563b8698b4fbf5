"""Nothing imports upward, and nothing in a circle: the rooms of the house stand on one another."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "racecar"
FLOORS = (
    {"errors", "support"},
    {"rules", "networks"},
    {"watch"},
    {"plan"},
    {"run"},
    {"racecar", "functional", "presets", "orthogonality"},
    {"every"},
    {"inspect", "pretrain"},
    {"integrations"},
    {"lab"},
    {"bench"},
    {"cli"},
)
"""From the ground up: a room may import from its own floor, if that makes no circle, and from those below."""


def modules():
    """Name → file of every module; a package has the name of its folder."""
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def imports(path):
    """The modules of ours that a file names, wherever it does: also in functions, and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "racecar":
            inside = node.module.removeprefix("racecar").removeprefix(".")
            for name in node.names:
                whole = f"{inside}.{name.name}".removeprefix(".")
                yield whole if whole in MODULES else inside
        elif isinstance(node, ast.Import):
            yield from (
                one.name.removeprefix("racecar").removeprefix(".") for one in node.names if "racecar" in one.name
            )


@pytest.fixture(scope="module")
def graph():
    """Module → what it imports. The package itself is left out: it names the public face, and imports it when asked."""
    return {name: {one for one in imports(path) if one and one != name} for name, path in MODULES.items() if name}


def floor(name):
    return next(i for i, rooms in enumerate(FLOORS) if name.split(".")[0] in rooms)


def test_every_room_has_a_floor(graph):
    assert {name.split(".")[0] for name in graph} == set().union(*FLOORS)


def test_nothing_imports_upward(graph):
    assert [(name, one) for name, found in graph.items() for one in found if floor(one) > floor(name)] == []


def test_nothing_imports_in_a_circle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_no_name_stands_twice():
    """No two classes have one name, and in the core and the bench no two modules: a reader could confuse them."""
    rooms = tuple(f"{room}." for room in ("support", "rules", "watch", "plan", "run", "bench"))
    modules = [name.rpartition(".")[2] for name in MODULES if name.startswith(rooms)]
    nodes = (node for path in MODULES.values() for node in ast.parse(path.read_text()).body)
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    assert [name for name in {*modules, *classes} if modules.count(name) > 1 or classes.count(name) > 1] == []
