"""Private names of torch are used in one file only."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from torch import nn

import racecar
from racecar.support import torch_private
from tests.sources import trees

LIBRARY = Path(racecar.__file__).parent
FILE = Path(torch_private.__file__)
PYTHONS = {"_fields", "_replace", "_exit", "_getframe"}
"""Of named tuples, os and sys."""


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def taken(tree):
    """Private names that a file takes from elsewhere: attributes, and parts of what it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (part for one in node.names for part in one.name.split("."))
            yield from (getattr(node, "module", None) or "").split(".")


def quoted(tree):
    """Words that look private in its strings, as for ``getattr``; docstrings aside."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return {word for one in strings if isinstance(one.value, str) for word in re.findall(r"(?<!\w)_\w+", one.value)}


def defined(tree):
    """Names that a file defines: functions, classes, variables and attributes that it sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(getattr(node, "ctx", None), ast.Store) and isinstance(node, ast.Name | ast.Attribute):
            own = isinstance(node, ast.Name) or (isinstance(node.value, ast.Name) and node.value.id == "self")
            yield (node.id if isinstance(node, ast.Name) else node.attr) if own else ""


def test_one_file_uses_private_names_of_torch():
    library = {path: tree for path, tree in trees().items() if LIBRARY in path.parents}
    here = library.pop(FILE)
    torchs = {name for name in taken(here) if is_private(name)} | quoted(here)
    assert {"_base", "_version", "_C", "_orig_mod", "_get_fsdp_state"} <= torchs
    others = {name for tree in library.values() for name in defined(tree)} - torchs | PYTHONS
    elsewhere = {
        (path.relative_to(LIBRARY).as_posix(), name)
        for path, tree in library.items()
        for name in {one for one in taken(tree) if is_private(one)} - others | quoted(tree) & torchs
    }
    assert elsewhere == set()


def test_names_that_nobody_would_miss_are_there():
    """Where torch renames them, nothing fails: see what their docstrings say."""
    assert vars(nn.Linear(1, 1)).keys() >= {*torch_private.HOOK_TABLES}
    assert find_spec(torch_private.CHECKPOINT_LOG) is not None
    assert find_spec("torch._dynamo") is not None
