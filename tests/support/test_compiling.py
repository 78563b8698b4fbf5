"""One seam between eager and compiled code."""

import ast
from pathlib import Path

import racecar

PACKAGE = Path(racecar.__file__).parent


def test_one_module_asks_whether_it_is_compiled():
    """A new torch then touches one file."""
    names = {"is_compiling", "is_dynamo_compiling", "is_functorch_wrapped_tensor", "is_current_stream_capturing"}
    asking = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = {one.name for one in node.names} if isinstance(node, ast.ImportFrom) else set()
            if named & names or (isinstance(node, ast.Attribute) and node.attr in names):
                asking.add(path.relative_to(PACKAGE).as_posix())
    assert asking == {"support/compiling.py"}
