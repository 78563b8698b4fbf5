"""The source files, parsed once for all tests that read them."""

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


@cache
def trees() -> dict[Path, ast.Module]:
    """Path → syntax tree of every file of the library and the laboratory."""
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
