"""One seam between eager and compiled code."""

import ast
from pathlib import Path

import racecar

SOURCE = Path(racecar.__file__).parents[1]


def test_one_module_asks_whether_it_is_compiled():
    """A new torch then touches one file."""
    names = {"is_compiling", "is_dynamo_compiling", "is_current_stream_capturing"}
    asking = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = {one.name for one in node.names} if isinstance(node, ast.ImportFrom) else set()
            if named & names or (isinstance(node, ast.Attribute) and node.attr in names):
                asking.add(path.relative_to(SOURCE).as_posix())
    assert asking == {"racecar/support/compiling.py"}
