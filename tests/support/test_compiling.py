"""One seam between eager and compiled code; and nothing global changes when racecar is imported."""

import ast
import logging
from pathlib import Path

import torch
from torch import nn

import racecar
from racecar import Racecar

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


def test_a_compiled_slice_is_silent(caplog):
    """Torch would ask, in its log, not to change anything in place where things are made again; nothing does."""
    torch._dynamo.reset()
    rr = Racecar(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(4, 4), fraction=0.5)
    with caplog.at_level(logging.WARNING):
        torch.compile(rr, backend="aot_eager", fullgraph=True)(torch.randn(4, 4))[1].backward()
    assert not caplog.records
    assert rr.model[0].weight.grad.any()
