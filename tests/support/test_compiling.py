"""One module decides between eager and compiled code."""

import ast

from tests.sources import SOURCE, trees


def test_one_module_asks_whether_it_is_compiled():
    """So that a new version of torch changes one file only."""
    names = {"is_compiling", "is_dynamo_compiling", "is_current_stream_capturing"}
    asking = set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            named = {one.name for one in node.names} if isinstance(node, ast.ImportFrom) else set()
            if named & names or (isinstance(node, ast.Attribute) and node.attr in names):
                asking.add(path.relative_to(SOURCE).as_posix())
    assert asking == {"racecar/support/compiling.py"}
